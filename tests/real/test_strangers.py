"""Credentials of real processes: who has them takes part, and who has not is told so, on both sides."""

from __future__ import annotations

import pytest
import trustme
from stage import CALM, ONE, TWO, Stage


@pytest.fixture
def keys(tmp_path):
    """Certificate and key of each node, of one authority; a secret."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    secret = tmp_path / "secret"
    secret.write_text("a secret of this test alone\n")
    secret.chmod(0o600)
    for name in ("leader-1", ONE):
        unit = "leader" if name == "leader-1" else None
        issued = authority.issue_cert(name, "127.0.0.1", organization_unit_name=unit)
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
        (tmp_path / f"{name}.key").chmod(0o600)

    def options(name):
        tls = ("--tls-cert", f"{tmp_path}/{name}.pem", "--tls-key", f"{tmp_path}/{name}.key", "--tls-ca")
        return ("--secret-file", str(tmp_path / "secret"), *tls, str(tmp_path / "ca.pem"))

    return options


def test_a_secret_and_certificates_over_the_command(tmp_path, keys):
    with Stage(tmp_path, **CALM) as stage:
        stage.publish("orders", count=20)
        stage.lead(*keys("leader-1"))
        stage.join(ONE, *keys(ONE))
        stage.until_done()
        assert stage.wrong() == []


def test_a_consumer_without_the_secret_is_told_so_and_gets_nothing(tmp_path, keys):
    secret = keys(ONE)[:2]
    with Stage(tmp_path, **CALM) as stage:
        stage.publish("orders", count=20)
        stage.lead(*secret)
        stage.join(TWO)
        leader, stranger = (stage.nodes.nodes[name] for name in ("leader-1", TWO))
        stage.until(lambda: "(consumer-2) is cut off: shows no secret" in leader.read_log(), "the leader to say it")
        stage.until(lambda: "(leader-1) is cut off: asks for a secret" in stranger.read_log(), "the consumer to say it")
        stage.join(ONE, *secret)
        stage.until_done()
        assert stage.got(TWO) == []
        assert "of this test alone" not in leader.read_log() + stranger.read_log()
