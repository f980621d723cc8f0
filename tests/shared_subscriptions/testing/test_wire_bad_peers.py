"""Peers of the kit over the wire that speak something else: one line names the thing, and nothing is called held."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

import msgspec
import pytest

from statemachines import cli
from statemachines.kernel import ConfigurationError
from statemachines.testing.conformance.interface import InterfaceError
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_run import WireRun
from statemachines.testing.conformance.wire_verdict import WireOptions
from statemachines.wire import encode_hello, frame

ROLE = role_of("shared_subscriptions/borrower")
CONSUMER = "shared_subscriptions/consumer"
HELLO = encode_hello(CONSUMER, "peer-1~1")
ME = "peer-1~1/1"
WANTED = ("leader_wanted", ME, "g", "#")


def packet(sender, to, message):
    return frame(msgspec.msgpack.encode((sender, to, 0, message)))


BROKEN = {
    "a frame of 1 GB": (b"\x40\x00\x00\x00", "a frame of 1073741824 bytes; at most 1024 are allowed"),
    "a large frame after the hello": (HELLO + b"\x40\x00\x00\x00", "bytes; at most 1048576 are allowed"),
    "garbage": (b"\x00\x00\x00\x04oops", "not a hello of a gapless node"),
    "another protocol": (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes; at most 1024 are allowed"),
    "another hello": (frame(msgspec.msgpack.encode(["mqtt", 5, "x", "y~1"])), "not a gapless node"),
    "a newer version": (
        frame(msgspec.msgpack.encode(["gapless", 5, CONSUMER, "peer-1~1"])),
        "speaks version 5 of the wire, and this node speaks 4",
    ),
    "another role": (encode_hello("shared_subscriptions/leader", "peer-1~1"), "is a 'shared_subscriptions/leader'"),
    "garbage after the hello": (HELLO + b"\x00\x00\x00\x01\xc1", "not MessagePack"),
    "no message": (HELLO + packet(ME, "leader", ("grant", ME, 1, 1, "s", 1, 0)), "a message that is not taken here"),
    "another party": (HELLO + packet("peer-2~1/1", "leader", WANTED), "the id of a party begins with the life"),
    "the name of another": (
        HELLO + packet(ME, "leader", ("leader_wanted", "peer-1~1/2", "g", "#")),
        "that names peer-1~1/2; the two are equal",
    ),
    "to somebody else": (HELLO + packet(ME, "leader-7~1", WANTED), "which does not live on kit"),
    "an early end": (b"", "has closed its connection before its hello; the first frame is one"),
}


def judge(options, *talks, command=()):
    """The verdict of a run; each of `talks` has a connection of its own, one after the other."""
    run = WireRun(ROLE, options, command)

    def talk(address):
        with contextlib.ExitStack() as stack, contextlib.suppress(ConnectionError):
            for one in talks:
                one(stack.enter_context(socket.create_connection(address)))

    async def both():
        talking = []
        verdict = await run.judge(
            lambda address: talking.append(asyncio.ensure_future(asyncio.to_thread(talk, address)))
        )
        await asyncio.gather(*talking)
        return verdict

    return asyncio.run(both())


def say(data):
    """What a peer does that says this and waits until the kit ends the connection."""

    def talk(connection):
        connection.sendall(data)
        while connection.recv(1_024):
            pass

    return talk


@pytest.mark.parametrize("how", ["another party", "the name of another"])
def test_SS_320_a_borrower_speaks_for_itself(how):
    data, said = BROKEN[how]
    with pytest.raises(InterfaceError, match=said):
        judge(WireOptions(seconds=2), say(data))


@pytest.mark.parametrize("how", BROKEN)
def test_a_peer_that_speaks_something_else_is_wrong_usage(how):
    data, said = BROKEN[how]

    with pytest.raises(InterfaceError) as caught:
        judge(WireOptions(seconds=60), say(data) if data else lambda connection: connection.close())
    assert said in str(caught.value)
    assert str(caught.value).startswith("the implementation (")
    assert "\n" not in str(caught.value)


def test_a_peer_that_connects_twice_is_wrong_usage():
    def talk(connection):
        connection.sendall(HELLO)
        connection.recv(1)

    with pytest.raises(InterfaceError, match="connects as peer-1~1 while peer-1 is connected; end the first"):
        judge(WireOptions(seconds=60), talk, say(HELLO))


def test_a_process_that_never_connects_and_ends_is_wrong_usage():
    command = (sys.executable, "-c", "pass")
    with pytest.raises(InterfaceError, match="has ended with exit code 0, and has never connected; it dials"):
        judge(WireOptions(seconds=60), command=command)


def test_a_role_that_is_not_declared_for_the_wire_says_so():
    with pytest.raises(ConfigurationError, match="cannot be tested over the wire"):
        WireRun(role_of("shared_subscriptions/group"), WireOptions())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--listen", "nowhere"), "must be HOST:PORT"),
        (("--listen", "192.0.2.1:0"), "cannot be listened on"),
        (("--listen", "127.0.0.1:0", "--config", "no-such.toml"), "no-such.toml"),
        (("--listen", "127.0.0.1:0", "--", "no-such-command"), "cannot be started"),
        (("--listen", "127.0.0.1:0", "--script", "no-such.json"), "no-such.json"),
        (("--connect", "127.0.0.1:0"), "borrower dials the kit; give --listen in its place"),
    ],
)
def test_wrong_usage_has_exit_code_2(capsys, arguments, said):
    assert cli.run(("conform", "borrower", *arguments)) == 2
    assert said in capsys.readouterr().err


def test_the_first_line_for_programs_has_the_address_and_the_last_the_verdict(capsys):
    assert cli.run(("conform", "borrower", "--listen", "127.0.0.1:0", "--seconds", "0.1", "--json")) == 3
    first, last = capsys.readouterr().out.splitlines()
    assert msgspec.json.decode(first)["configuration"]["ping_interval_ms"] > 0
    assert msgspec.json.decode(first)["address"].startswith("127.0.0.1:")
    assert msgspec.json.decode(last)["outcome"] == "inconclusive"
