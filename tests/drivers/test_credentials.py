"""Credentials: each file that is missing, unreadable or wrong is named, with what to do; nothing is printed."""

from __future__ import annotations

import os

import pytest
from certificates import Authority

from statemachines import cli
from statemachines.drivers.credentials import Credentials, names_in
from statemachines.drivers.shared_subscriptions.subscribe import SharedSubscription
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


def test_nothing_is_needed():
    none = Credentials()
    assert (none.secret, none.listening(), none.dialling(), none.mutual) == (None, None, None, False)


def test_a_secret_is_read_without_its_line_end(tmp_path):
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef\n")
    credentials = Credentials(secret_file=path)
    assert credentials.secret == b"0123456789abcdef"
    assert "0123" not in repr(credentials)


@pytest.mark.parametrize("secret", [b"", b"short", b"x" * 5_000, b"fifteen letters\n"])
def test_a_secret_of_another_length_is_refused_and_not_repeated(tmp_path, secret):
    path = tmp_path / "secret"
    path.write_bytes(secret)
    for said in (refusal(secret_file=path), refusal(secret=secret)):
        assert "16 to 4096 are needed" in said
        assert "fifteen" not in said
        assert "xxx" not in said


def test_a_missing_file_is_named(tmp_path, authority):
    missing = tmp_path / "none"
    cert, key = authority.issue("a")
    assert f"secret_file = '{missing}': cannot be read: No such file" in refusal(secret_file=missing)
    assert f"tls_cert = '{missing}': cannot be read: No such file" in refusal(tls_cert=missing, tls_key=key)
    assert f"tls_key = '{missing}': cannot be read: No such file" in refusal(tls_cert=cert, tls_key=missing)
    assert f"tls_ca = '{missing}': cannot be read: No such file" in refusal(tls_ca=missing)
    assert "cannot be read: Is a directory" in refusal(tls_ca=tmp_path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_what_others_may_read_is_no_secret(tmp_path, authority, mode):
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    cert, key = authority.issue("open")
    secret.chmod(mode)
    key.chmod(mode)
    told = f"others may read or write it (mode {mode:04o}); chmod 600 it"
    assert f"secret_file = '{secret}': {told}" in refusal(secret_file=secret)
    assert f"tls_key = '{key}': {told}" in refusal(tls_cert=cert, tls_key=key)


@pytest.mark.parametrize(("mode", "may"), [(0o640, True), (0o644, False), (0o660, False)])
def test_the_group_may_read_what_root_has_given_it(tmp_path, monkeypatch, mode, may):
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    secret.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: secret.stat().st_uid + 1)
    if may:
        assert Credentials(secret_file=secret).secret == b"0123456789abcdef"
    else:
        assert "others may read or write it" in refusal(secret_file=secret)


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


def test_names_of_a_certificate():
    dns = {"subjectAltName": (("DNS", "a"), ("IP Address", "1.2.3.4")), "subject": ((("commonName", "b"),),)}
    assert names_in(dns) == {"a"}, "the common name counts only where there is no other"
    assert names_in({"subject": ((("organizationName", "o"),), (("commonName", "b"),))}) == {"b"}
    assert names_in({}) == names_in(None) == set()


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
    assert not (tmp_path / "messages.db").exists()
