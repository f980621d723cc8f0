"""The kit over the wire speaks TLS, as a side that listens and as one that dials."""

import asyncio
import sys

from certificates import Authority

from statemachines.drivers.credentials import Credentials
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_run import WireRun
from statemachines.testing.conformance.wire_verdict import WireOptions, text_of

BORROWER, LEADER = role_of("shared_subscriptions/borrower"), role_of("shared_subscriptions/leader")
ME = "peer-1~1/1"
SECRET = "0123456789abcdef"


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
    options = WireOptions(seconds=10, tolerance_s=30.0, credentials=credentials)
    verdict = asyncio.run(WireRun(LEADER, options, command).judge(lambda address: None))
    assert verdict.counts["instances"] == 1
    assert verdict.outcome is ConformanceOutcome.PASS, text_of(verdict, LEADER)
