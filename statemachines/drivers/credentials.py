"""Credentials: what a node shows to others and asks of them: a shared secret, TLS, or both.

    credentials = Credentials(secret_file="group.secret", tls_ca="ca.pem")

Everything is read and checked when it is made, and never printed: what is wrong with a file is a `ConfigurationError`
that names it.  A secret or a key that others may read is refused.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any, Final

from statemachines.kernel import ConfigurationError

SECRET_SIZE: Final = (16, 4_096)
"""Bytes of a secret, at least and at most."""

StrPath = str | os.PathLike[str]


class Credentials:
    """`secret_file`: holds the secret that all nodes share, or `secret` is it (16 bytes at least; line ends at its end
    do not count).  `tls_cert`, `tls_key`: PEM files of this node's certificate chain and key; `tls_ca`: of those who
    sign the certificates of others.

    A node that listens speaks TLS if it has a certificate; with `tls_ca` it asks each peer for one.  A node that dials
    speaks TLS if it has `tls_ca`, and shows its certificate if it has one.  Where both show certificates, the name of a
    node must be a name of its certificate.
    """

    def __init__(
        self,
        *,
        secret_file: StrPath | None = None,
        secret: bytes | None = None,
        tls_cert: StrPath | None = None,
        tls_key: StrPath | None = None,
        tls_ca: StrPath | None = None,
    ) -> None:
        if secret is not None and secret_file is not None:
            raise ConfigurationError("secret_file", str(secret_file), "secret is given as well; give one of the two")
        if secret_file is not None:
            secret = _read_private("secret_file", Path(secret_file))
        self.secret = None if secret is None else _checked(secret, secret_file)
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
        return f"Credentials(secret={'yes' if self.secret else 'no'}, tls={self._cert or self._ca or 'no'})"

    @property
    def mutual(self) -> bool:
        """Both sides show certificates."""
        return self._cert is not None and self._ca is not None

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


NONE: Final = Credentials()
"""No secret, no TLS: whoever reaches the port may take part."""


def names_in(certificate: dict[str, Any] | None) -> frozenset[str]:
    """The names that a peer's certificate (as `ssl` gives it) is for: its DNS names, or the common name where there are
    none."""
    if not certificate:
        return frozenset()
    names = frozenset(name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS")
    common = (name for part in certificate.get("subject", ()) for kind, name in part if kind == "commonName")
    return names or frozenset(common)


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


def _read_private(key: str, path: Path) -> bytes:
    """What only its owner may read; the group too, of a file that is another's (root's, as services are given one)."""
    content = _read(key, path)
    found = path.stat()
    if os.name == "posix" and found.st_mode & (0o077 if found.st_uid == os.geteuid() else 0o027):
        rule = f"others may read or write it (mode {found.st_mode & 0o777:04o}); chmod 600 it, and think of a new one"
        raise ConfigurationError(key, str(path), rule)
    return content


def _checked(secret: bytes, path: StrPath | None) -> bytes:
    """Neither empty nor a word that could be guessed; the value is not repeated."""
    secret = secret.rstrip(b"\r\n")
    least, most = SECRET_SIZE
    if not least <= len(secret) <= most:
        key, value = ("secret", "...") if path is None else ("secret_file", str(path))
        rule = f"a secret of {len(secret)} bytes; {least} to {most} are needed, for example from: openssl rand -hex 32"
        raise ConfigurationError(key, value, rule)
    return secret


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
    if b"ENCRYPTED" in _read_private("tls_key", key):
        raise ConfigurationError("tls_key", str(key), "is encrypted; give a key without a passphrase")
    try:
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError("tls_key", str(key), f"is not the key of the certificate in {cert}") from error
        raise ConfigurationError(
            "tls_key", str(key), "holds no private key in PEM (-----BEGIN PRIVATE KEY-----)"
        ) from error
