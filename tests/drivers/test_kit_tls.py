"""The kit over the wire speaks TLS, as a side that listens and as one that dials."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys

import msgspec
from certificates import Authority

from statemachines.drivers.credentials import Credentials
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_report import text_of
from statemachines.testing.conformance.wire_run import WireRun
from statemachines.testing.conformance.wire_verdict import WireOptions
from statemachines.wire import encode_hello, frame

BORROWER, LEADER = role_of("shared_subscriptions/borrower"), role_of("shared_subscriptions/leader")
ME = "peer-1~1/1"
SAID = encode_hello("shared_subscriptions/consumer", "peer-1~1") + frame(
    msgspec.msgpack.encode((ME, "leader", 0, ("leader_wanted", ME, "g", "#")))
)
SECRET = "0123456789abcdef"


def judge_member(credentials, context):
    """The verdict on a member that says one thing, over TLS where there is a context."""
    options = WireOptions(seconds=0.5, tolerance_s=30.0, rate=0.0, faults=0.0, credentials=credentials)
    run = WireRun(BORROWER, options)

    def talk(address):
        with socket.create_connection(address) as plain:
            connection = plain if context is None else context.wrap_socket(plain, server_hostname=address[0])
            connection.sendall(SAID)
            while connection.recv(1_024):
                pass
            connection.close()

    async def both():
        talking = []
        verdict = await run.judge(
            lambda address: talking.append(asyncio.ensure_future(asyncio.to_thread(talk, address)))
        )
        await asyncio.gather(*talking, return_exceptions=True)
        return verdict

    return asyncio.run(both())


def test_a_member_is_tested_over_tls(tmp_path):
    authority = Authority(tmp_path)
    context = ssl.create_default_context(cafile=str(authority.ca))
    verdict = judge_member(authority.server("leader-1"), context)
    assert verdict.counts["instances"] == 1
    assert verdict.outcome is ConformanceOutcome.PASS, verdict.why


def test_a_member_without_tls_is_told_that_the_kit_speaks_it(tmp_path):
    verdict = judge_member(Authority(tmp_path).server("leader-1"), None)
    assert verdict.outcome is ConformanceOutcome.INCONCLUSIVE
    assert verdict.why == "nothing has connected within 0.5 s; dial the address above with TLS"


def test_a_leader_is_tested_over_tls_with_a_secret(tmp_path):
    authority = Authority(tmp_path)
    cert, key = authority.issue("leader-1", "127.0.0.1")
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text(SECRET)
    command = (
        sys.executable, "-m", "statemachines", "node", "leader", "--store", "{database}", "--config", "{config}",
        "--listen", "{address}", "--state", "{directory}", "--tls-cert", str(cert), "--tls-key", str(key),
        "--secret-file", str(secret),
    )  # fmt: skip
    credentials = Credentials(secret=SECRET.encode(), tls_ca=authority.ca)
    options = WireOptions(seconds=2.5, tolerance_s=30.0, credentials=credentials)
    verdict = asyncio.run(WireRun(LEADER, options, command).judge(lambda address: None))
    assert verdict.counts["instances"] == 1
    assert verdict.outcome is ConformanceOutcome.PASS, text_of(verdict, LEADER)
