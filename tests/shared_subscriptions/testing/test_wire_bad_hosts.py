"""Leader hosts that the kit dials and that speak something else: one line names the thing; nothing is called held."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading

import msgspec
import pytest

from statemachines import cli
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.interface import InterfaceError
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_run import StartedProcess, WireRun
from statemachines.testing.conformance.wire_verdict import WireOptions
from statemachines.wire import encode_hello, frame

ROLE = role_of("shared_subscriptions/leader")
LEADER = "shared_subscriptions/leader"
HELLO = encode_hello(LEADER, "host-1~1")
ME = "host-1~1/1"


def packet(sender, to, message):
    return frame(msgspec.msgpack.encode((sender, to, 0, message)))


ANSWER = packet(ME, "kit~1/1", ("leader_connect_response", "kit~1/1", ME, 1, 1))
BROKEN = {
    "a frame of 1 GB": (b"\x40\x00\x00\x00", "a frame of 1073741824 bytes; at most 1024 are allowed"),
    "lines of text": (b"ready to lead\n", "bytes; at most 1024 are allowed"),
    "a newer version": (
        frame(msgspec.msgpack.encode(["gapless", 5, LEADER, "host-1~1"])),
        "speaks version 5 of the wire, and this node speaks 4",
    ),
    "another role": (encode_hello("persistent_sessions/node", "host-1~1"), "is a 'persistent_sessions/node'"),
    "another message": (HELLO + packet(ME, "kit~1/1", ("ping", "kit~1/1", 1, 1, 1)), "a message that is not taken"),
    "for somebody else": (
        HELLO + packet(ME, "kit~1/2", ("undeclared", "kit~1/1")),
        "sent a message to kit~1/2 that names kit~1/1; the two are equal",
    ),
    "an early end": (b"", "has closed its connection before its hello"),
}


def judge(data, answer=b"", **options):
    """The verdict on a host that says this to each that dials, answers so when it is looked for, and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.sendall(data)
                    heard = b""
                    while answer and b"leader_wanted" not in heard:
                        heard += connection.recv(1_024)
                    connection.sendall(answer)
                    if data:
                        stack.callback(connection.close)
                    else:
                        connection.close()

        threading.Thread(target=serve, daemon=True).start()
        given = {"faults": 0.0, **options}
        run = WireRun(ROLE, WireOptions(address=server.getsockname(), **given))
        return asyncio.run(run.judge(lambda address: None))


@pytest.mark.parametrize("how", BROKEN)
def test_a_host_that_speaks_something_else_is_wrong_usage(how):
    data, said = BROKEN[how]
    with pytest.raises(InterfaceError) as caught:
        judge(data, seconds=30)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_host_that_never_answers_is_inconclusive():
    verdict = judge(HELLO, seconds=0.6)
    assert verdict.outcome is ConformanceOutcome.INCONCLUSIVE
    assert "no message has come within 0.6 s; an instance begins with one" in verdict.why


def test_a_leader_that_falls_silent_has_failed():
    verdict = judge(HELLO, ANSWER, seconds=30, tolerance_s=0.3)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert "missing: send kit~1/1 grant" in verdict.why


def test_a_leader_that_answers_unasked_has_failed():
    verdict = judge(HELLO + ANSWER, seconds=30)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert "not expected: send kit~1/1 leader_connect_response" in verdict.why


def test_a_leader_that_answers_twice_under_two_numbers_has_failed():
    again = packet(ME, "kit~1/1", ("leader_connect_response", "kit~1/1", ME, 1, 2))
    verdict = judge(HELLO, ANSWER + again, seconds=30)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert verdict.violation is not None


def test_nobody_that_listens_is_inconclusive_and_no_child_is_left(monkeypatch):
    started = []
    before = StartedProcess.__init__

    def begin(self, command):
        before(self, command)
        started.append(self._process.pid)

    monkeypatch.setattr(StartedProcess, "__init__", begin)
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    verdict = asyncio.run(WireRun(ROLE, WireOptions(seconds=0.4), command).judge(lambda address: None))
    assert verdict.outcome is ConformanceOutcome.INCONCLUSIVE
    assert verdict.why == "nothing has connected within 0.4 s; listen at the address above"
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_role_that_listens_is_connected_to(capsys):
    assert cli.run(("conform", "leader", "--listen", "127.0.0.1:0")) == 2
    assert "leader listens, and the kit dials it; give --connect in its place" in capsys.readouterr().err
