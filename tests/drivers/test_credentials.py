"""Credentials: each file that is missing, unreadable or wrong is named, with what to do; nothing is printed."""

import os

import pytest
from certificates import Authority

from statemachines import cli
from statemachines.drivers.credentials import Credentials
from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
from statemachines.kernel import ConfigurationError


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(autouse=True)
def _private_files():
    before = os.umask(0o077)
    yield
    os.umask(before)


def refusal(**files):
    with pytest.raises(ConfigurationError) as refused:
        Credentials(**files)
    return str(refused.value)


def test_a_secret_is_read_without_its_line_end(tmp_path):
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef\n")
    credentials = Credentials(secret_file=path)
    assert credentials.secrets == (b"0123456789abcdef",)
    assert "0123" not in repr(credentials)


def test_a_file_that_holds_something_else_is_named(tmp_path, authority):
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("rubbish\n")
    cert, key = authority.issue("a")
    assert "tls_cert = " in refusal(tls_cert=rubbish, tls_key=key)
    assert "holds no certificate in PEM" in refusal(tls_cert=key, tls_key=key)
    assert "holds no certificate in PEM" in refusal(tls_ca=rubbish)
    assert "holds no private key in PEM" in refusal(tls_cert=cert, tls_key=rubbish)
    assert "holds no private key in PEM" in refusal(tls_cert=cert, tls_key=cert)


def test_what_does_not_belong_together_is_named(authority):
    cert, key = authority.issue("a")
    _, other = authority.issue("b")
    assert f"is not the key of the certificate in {cert}" in refusal(tls_cert=cert, tls_key=other)
    assert "needs tls_key; give both" in refusal(tls_cert=cert)
    assert "needs tls_cert; give both" in refusal(tls_key=key)
    assert "secret is given as well" in refusal(secret=b"x" * 16, secret_file="f")


def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(tmp_path, authority):
    from cryptography.hazmat.primitives import serialization

    cert, key = authority.issue("a")
    plain = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    for form in (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL):
        algorithm = serialization.BestAvailableEncryption(b"word")
        locked.write_bytes(plain.private_bytes(serialization.Encoding.PEM, form, algorithm))
        assert "is encrypted; give a key without a passphrase" in refusal(tls_cert=cert, tls_key=locked)


def test_who_listens_and_who_dials_need_different_files(tmp_path, authority):
    cert, key = authority.issue("a")
    with pytest.raises(ConfigurationError, match="needs tls_cert and tls_key"):
        Credentials(tls_ca=authority.ca).listening()
    alone = Credentials(tls_cert=cert, tls_key=key)
    with pytest.raises(ConfigurationError, match="needs tls_ca"):
        alone.dialling()
    with pytest.raises(ConfigurationError, match="needs tls_ca"):
        SharedSubscription("$shared/g/#", leader="127.0.0.1:1", store=tmp_path / "x.db", credentials=alone)


def secret_file(tmp_path, text, name="secret"):
    path = tmp_path / name
    path.touch(mode=0o600)
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0123456789abcdef\n" * 2, "holds 2 lines; a secret is one line, and two different ones"),
        ("0123456789abcdef\nfedcba9876543210\naaaabbbbccccdddd", "holds 3 lines"),
        ("0123456789abcdef\nshort", "a secret of 5 bytes; 16 to 4096"),
        ("0123456789abcdef\n\nfedcba9876543210", "holds 3 lines"),
    ],
)
def test_SS_253_more_than_two_or_the_same_twice_are_refused(tmp_path, text, says):
    path = secret_file(tmp_path, text)
    assert f"secret_file = '{path}': {says}" in refusal(secret_file=path)
    assert f"role_secret_file = '{path}': {says}" in refusal(secret=b"x" * 16, role_secret_file=path)
    assert f"secret = '...': {says}" in refusal(secret=text.encode())


def test_SS_251_the_secret_of_a_role_is_another_and_comes_beside_the_first(tmp_path):
    path = secret_file(tmp_path, "0123456789abcdef\n")
    assert f"role_secret_file = '{path}': needs a secret as well" in refusal(role_secret_file=path)
    same = refusal(secret=b"0123456789abcdef", role_secret_file=path)
    assert "is the secret that all nodes share; think of another" in same
    assert "0123" not in same
    assert "role_secret = '...': is the secret" in refusal(secret=b"x" * 16 + b"\n" + b"y" * 16, role_secret=b"y" * 16)
    assert "role_secret is given as well" in refusal(role_secret=b"x" * 16, role_secret_file=path)
    path.chmod(0o640)
    assert "others may read or write it" in refusal(secret=b"x" * 16, role_secret_file=path)


def test_the_command_names_what_is_wrong(tmp_path, capsys, monkeypatch):
    store = ["--store", str(tmp_path / "messages.db")]
    assert cli.run(["node", "leader", *store, "--tls-ca", str(tmp_path / "none")]) == cli.Exit.USAGE
    assert "tls_ca" in capsys.readouterr().err
    monkeypatch.setenv("GAPLESS_SECRET", "short")
    assert cli.run(["node", "consumer", "$shared/g/#", *store]) == cli.Exit.USAGE
    said = capsys.readouterr().err
    assert "a secret of 5 bytes; 16 to 4096 are needed" in said
    assert "short" not in said
    assert cli.run(["node", "consumer", "$shared/g/#", *store, "--secret-file", str(tmp_path / "f")]) == cli.Exit.USAGE
    assert "GAPLESS_SECRET is set in the environment as well" in capsys.readouterr().err
    monkeypatch.setenv("GAPLESS_SECRET", "x" * 16)
    monkeypatch.setenv("GAPLESS_LEADER_SECRET", "tiny")
    assert cli.run(["node", "leader", *store]) == cli.Exit.USAGE
    assert "role_secret = '...': a secret of 4 bytes" in capsys.readouterr().err
    monkeypatch.setenv("GAPLESS_LEADER_SECRET", "y" * 16)
    assert cli.run(["node", "leader", *store, "--leader-secret-file", str(tmp_path / "f")]) == cli.Exit.USAGE
    said = capsys.readouterr().err
    assert "--leader-secret-file" in said
    assert "GAPLESS_LEADER_SECRET is set in the environment as well" in said
    assert not (tmp_path / "messages.db").exists()
