"""Leader hosts that the kit dials and that speak something else: one line names the thing; nothing is called held."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import msgspec

from statemachines import cli
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_run import WireRun
from statemachines.testing.conformance.wire_verdict import WireOptions
from statemachines.wire import encode_hello, frame

ROLE = role_of("shared_subscriptions/leader")
LEADER = "shared_subscriptions/leader"
HELLO = encode_hello(LEADER, "host-1~1")
ME = "host-1~1/1"


def packet(sender, to, message):
    return frame(msgspec.msgpack.encode((sender, to, 0, message)))


ANSWER = packet(ME, "kit~1/1", ("leader_connect_response", "kit~1/1", ME, 1, 1))


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


def test_a_leader_that_falls_silent_has_failed():
    verdict = judge(HELLO, ANSWER, seconds=30, tolerance_s=0.3)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert "missing: send kit~1/1 grant" in verdict.why


def test_a_role_that_listens_is_connected_to(capsys):
    assert cli.run(("conform", "leader", "--listen", "127.0.0.1:0")) == 2
    assert "leader listens, and the kit dials it; give --connect in its place" in capsys.readouterr().err
