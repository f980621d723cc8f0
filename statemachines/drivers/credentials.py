"""Credentials: what a node shows to others and asks of them: shared secrets, TLS, or both.

    credentials = Credentials(secret_file="group.secret", tls_ca="ca.pem")

A file of a secret holds one, or two, a line each, while one takes the place of the other: both are accepted of others,
and the first is what this node proves.

Everything is read and checked when it is made, and never printed: what is wrong with a file is a `ConfigurationError`
that names it.  A secret or a key that others may read is refused.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from statemachines.kernel import ConfigurationError

SECRET_SIZE: Final = (16, 4_096)
"""Bytes of a secret, at least and at most."""

SECRETS_MAX: Final = 2
"""Secrets of one kind at a time: one, or the one of before and the one to come."""

StrPath = str | os.PathLike[str]


class Credentials:
    """`secret_file`: holds the secret that all nodes share, or `secret` is it (16 bytes at least; two of them a line
    each).  `role_secret_file`, `role_secret`: what only nodes of the role of this one share, who prove to each other by
    it that they are; it needs the other one beside it.  `tls_cert`, `tls_key`: PEM files of this node's certificate
    chain and key; `tls_ca`: of those who sign the certificates of others.

    A node that listens speaks TLS if it has a certificate; with `tls_ca` it asks each peer for one.  A node that dials
    speaks TLS if it has `tls_ca`, and shows its certificate if it has one.  Where both show certificates, the name of a
    node must be a name of its certificate.
    """

    def __init__(
        self,
        *,
        secret_file: StrPath | None = None,
        secret: bytes | None = None,
        role_secret_file: StrPath | None = None,
        role_secret: bytes | None = None,
        tls_cert: StrPath | None = None,
        tls_key: StrPath | None = None,
        tls_ca: StrPath | None = None,
    ) -> None:
        self.secrets = _secrets("secret", secret_file, secret)
        self.role_secrets = _secrets("role_secret", role_secret_file, role_secret)
        _check_kinds(self.secrets, self.role_secrets, role_secret_file)
        if (tls_cert is None) != (tls_key is None):
            given, missing = ("tls_cert", "tls_key") if tls_key is None else ("tls_key", "tls_cert")
            raise ConfigurationError(given, str(tls_cert or tls_key), f"needs {missing}; give both")
        self._cert = None if tls_cert is None else Path(tls_cert)
        self._ca = None if tls_ca is None else Path(tls_ca)
        self._listen = self._dial = None
        if self._ca is not None:
            _check_certificates("tls_ca", self._ca)
            self._dial = _context(ssl.PROTOCOL_TLS_CLIENT, self._ca)
        if tls_cert is not None and tls_key is not None:
            _check_certificates("tls_cert", Path(tls_cert))
            self._listen = _context(ssl.PROTOCOL_TLS_SERVER, self._ca)
            for context in (self._listen, self._dial):
                if context is not None:
                    _load_key(context, Path(tls_cert), Path(tls_key))

    def __repr__(self) -> str:
        secret, role_secret = ("yes" if some else "no" for some in (self.secrets, self.role_secrets))
        return f"Credentials(secret={secret}, role_secret={role_secret}, tls={self._cert or self._ca or 'no'})"

    @property
    def mutual(self) -> bool:
        """Both sides show certificates."""
        return self._cert is not None and self._ca is not None

    def check_peers(self, peers: Sequence[object], role: str) -> None:
        """Raises `ConfigurationError` where there are `peers` of our `role` (its short name) to whom we cannot prove
        it, though strangers must prove something."""
        if peers and self.secrets and not (self.mutual or self.role_secrets):
            rule = f"the secret that all share proves nobody to be a {role}; give all of them one more, the same "
            raise ConfigurationError("peers", list(peers), f"{rule}--{role}-secret-file (role_secret), or certificates")

    def listening(self) -> ssl.SSLContext | None:
        """For connections that are accepted; None: without TLS."""
        if self._ca is not None and self._cert is None:
            rule = "needs tls_cert and tls_key: a node that listens shows a certificate of its own"
            raise ConfigurationError("tls_ca", str(self._ca), rule)
        return self._listen

    def dialling(self) -> ssl.SSLContext | None:
        """For connections that we make; None: without TLS."""
        if self._cert is not None and self._ca is None:
            rule = "needs tls_ca: a node that dials checks the certificate of the other"
            raise ConfigurationError("tls_cert", str(self._cert), rule)
        return self._dial


def names_in(certificate: dict[str, Any] | None) -> frozenset[str]:
    """The names that a peer's certificate (as `ssl` gives it) is for: its DNS names, or the common name where there are
    none."""
    if not certificate:
        return frozenset()
    names = frozenset(name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS")
    common = (name for part in certificate.get("subject", ()) for kind, name in part if kind == "commonName")
    return names or frozenset(common)


def units_in(certificate: dict[str, Any] | None) -> frozenset[str]:
    """The organizational units (OU) that a peer's certificate is for: its roles."""
    parts = (certificate or {}).get("subject", ())
    return frozenset(name for part in parts for kind, name in part if kind == "organizationalUnitName")


def tls_reason(error: BaseException) -> str:
    """Why TLS with a peer did not come about, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message.rstrip('.')}; check it, and tls_ca of this node"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason:
            return f"it does not accept our certificate ({reason}); check tls_cert of this node, and tls_ca of that one"
        return f"it does not speak TLS ({reason}); start both nodes with TLS, or both without"
    return "it ended the connection before TLS was set up; it may not accept tls_cert of this node: check its tls_ca"


def _read(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(key, str(path), f"cannot be read: {error.strerror}") from error


def read_private(key: str, path: Path) -> bytes:
    """What only its owner may read; the group too, of a file that is another's (root's, as services are given one)."""
    content = _read(key, path)
    found = path.stat()
    if os.name == "posix" and found.st_mode & (0o077 if found.st_uid == os.geteuid() else 0o027):
        rule = f"others may read or write it (mode {found.st_mode & 0o777:04o}); chmod 600 it, and think of a new one"
        raise ConfigurationError(key, str(path), rule)
    return content


def _secrets(key: str, path: StrPath | None, given: bytes | None) -> tuple[bytes, ...]:
    """The secrets of one kind, a line each."""
    if given is not None and path is not None:
        raise ConfigurationError(f"{key}_file", str(path), f"{key} is given as well; give one of the two")
    if path is not None:
        key, given = f"{key}_file", read_private(f"{key}_file", Path(path))
    if given is None:
        return ()
    value = "..." if path is None else str(path)
    lines = tuple(line.rstrip(b"\r") for line in given.rstrip(b"\r\n").split(b"\n"))
    if len(lines) > SECRETS_MAX or len(set(lines)) < len(lines):
        rule = f"holds {len(lines)} lines; a secret is one line, and two different ones may be valid at a time"
        raise ConfigurationError(key, value, rule)
    for line in lines:
        _check_size(key, value, line)
    return lines


def _check_size(key: str, value: str, secret: bytes) -> None:
    """Neither empty nor a word that could be guessed; the secret is not repeated."""
    least, most = SECRET_SIZE
    if not least <= len(secret) <= most:
        rule = f"a secret of {len(secret)} bytes; {least} to {most} are needed, for example from: openssl rand -hex 32"
        raise ConfigurationError(key, value, rule)


def _check_kinds(secrets: tuple[bytes, ...], role_secrets: tuple[bytes, ...], path: StrPath | None) -> None:
    """The second kind comes beside the first, and is another."""
    key, value = ("role_secret", "...") if path is None else ("role_secret_file", str(path))
    if role_secrets and not secrets:
        rule = "needs a secret as well: what nodes of other roles prove; give both"
        raise ConfigurationError(key, value, rule)
    if not set(secrets).isdisjoint(role_secrets):
        rule = "is the secret that all nodes share; think of another, which only nodes of this role get"
        raise ConfigurationError(key, value, rule)


def _context(protocol: int, ca: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        context.load_verify_locations(ca)
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            # Whoever shows none is refused by the greeting, which can tell both sides why.
            context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _check_certificates(key: str, path: Path) -> None:
    """Raises `ConfigurationError` unless the file can be read and holds certificates in PEM."""
    _read(key, path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigurationError(key, str(path), "holds no certificate in PEM (-----BEGIN CERTIFICATE-----)") from error


def _load_key(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    if b"ENCRYPTED" in read_private("tls_key", key):
        raise ConfigurationError("tls_key", str(key), "is encrypted; give a key without a passphrase")
    try:
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError("tls_key", str(key), f"is not the key of the certificate in {cert}") from error
        raise ConfigurationError(
            "tls_key", str(key), "holds no private key in PEM (-----BEGIN PRIVATE KEY-----)"
        ) from error


NONE: Final = Credentials()
"""No secret, no TLS: whoever reaches the port may take part."""
