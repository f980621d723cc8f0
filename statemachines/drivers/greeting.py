"""Greeting: how two nodes open a connection; no input or output of its own.

Each side sends a hello.  Where a secret is shared, the hello carries a nonce, and then both prove that they know the
secret: first the side that dialled, then the side that accepted, so that a stranger who dials is given nothing to try
secrets on.  A proof is HMAC-SHA256 over which side it is of, and over role, life and nonce of both: that of another
connection, of the other side, or of another node is worth nothing, and neither is our own, sent back to us.

A role that others rely on is proved as well.  By a certificate, where both sides show one: the role is an
organizational unit (OU) of it.  Else, between two nodes of that role, by a second secret, which only nodes of that role
share: it takes the place of the first in their proofs.  Of each secret there may be two at a time: who dials proves
with the first, and who accepts answers with the one that it was shown.

A secret keeps strangers out.  It hides nothing, and does not help against somebody who sits on the line and lets the
greeting pass: for that there is TLS.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

import msgspec

from statemachines.wire import FrameError, Hello, decode_hello, frame, frame_hello, list_fields, quote_for_log

NONCE_SIZE: Final = 32

GREETING_MAX: Final = 1_024
"""Bytes of the largest frame before the greeting is over: a stranger fills no more of our memory."""


class Terms(msgspec.Struct, frozen=True):
    """What we can prove, and what a peer has to.

    `secrets`: what all nodes share (none: nothing is proved), `role_secrets`: what those of our role share; the first
    of each is ours, all are accepted.  `proved`: the full names of roles of peers that must be proved.  `names`,
    `units`: what the peer's certificate is for (None: there is none to check).
    """

    secrets: tuple[bytes, ...] = ()
    role_secrets: tuple[bytes, ...] = ()
    proved: tuple[str, ...] = ()
    names: frozenset[str] | None = None
    units: frozenset[str] = frozenset()


class Greeting:
    """Our side of one connection; it is over when `done`, and only then is anything that follows looked at.

    `mine` is our hello (its nonce empty where `terms` have no secret), `dialled` whether we made the connection;
    `has_store(role)`: whether a peer of this role must work on our store.
    """

    def __init__(
        self,
        mine: Hello,
        *peer_roles: str,
        dialled: bool,
        terms: Terms,
        has_store: Callable[[str], bool] = lambda role: True,
    ) -> None:
        assert bool(terms.secrets) == bool(mine.nonce)
        self.mine = mine
        self.peer: Hello | None = None
        """What the peer says it is; believe it when `done`."""
        self.done = False
        self._peer_roles = peer_roles
        self._dialled = dialled
        self._terms = terms
        self._shown: bytes | None = None
        self._has_store = has_store

    def begin(self) -> bytes:
        """The first frame to send."""
        return frame_hello(self.mine)

    def feed(self, body: bytes | memoryview) -> bytes:
        """Take the next frame of the peer; what to send it.  Raises `FrameError` when it must be cut off."""
        if self.peer is None:
            self.peer = decode_hello(body, *self._peer_roles)
            self._check(self.peer)
            self.done = not self._terms.secrets
            return self._prove() if self._terms.secrets and self._dialled else b""
        self._check_proof(body)
        self.done = True
        return b"" if self._dialled else self._prove()

    @property
    def has_sent_proof(self) -> bool:
        """We have proved that we know the secret, and the peer has not."""
        return self._dialled and bool(self._terms.secrets) and self.peer is not None and not self.done

    def _check(self, peer: Hello) -> None:
        """Both sides judge both hellos alike, so that both can say what is wrong."""
        if peer.life == self.mine.life:
            raise FrameError("goes by our own name and number; give each node its own name and state directory")
        secrets = self._terms.secrets
        if not secrets and peer.nonce:
            raise FrameError("asks for a secret; start this node with --secret-file too, or that one without")
        if secrets and not peer.nonce:
            raise FrameError("shows no secret; start it with --secret-file too, or this node without")
        if secrets and len(peer.nonce) != NONCE_SIZE:
            raise FrameError(f"sent a nonce of {len(peer.nonce)} bytes; {NONCE_SIZE} are expected")
        if peer.mutual != self.mine.mutual:
            raise FrameError(MENDS[self.mine.mutual, self._dialled])
        if self._has_store(peer.role):
            check_store(self.mine.store, peer.store)
        self._check_certificate(peer)
        self._check_role(peer)

    def _check_certificate(self, peer: Hello) -> None:
        names = self._terms.names
        if names is not None and peer.node not in names:
            listed = ", ".join(sorted(names)) or "nobody"
            raise FrameError(
                f"says it is {peer.node}, and its certificate is for {quote_for_log(listed)}; give it one for "
                f"{peer.node}, or start it under a name of its certificate"
            )

    def _check_role(self, peer: Hello) -> None:
        """A role that must be proved: by the certificate, or else by what is still to come."""
        terms, role = self._terms, short(peer.role)
        if peer.role not in terms.proved:
            return
        if terms.names is not None:
            if role not in terms.units:
                said = f"says it is a {role}, and its certificate is not for one"
                raise FrameError(f"{said}; give it one with {role} as organizational unit (OU)")
        elif terms.secrets and peer.role == self.mine.role and not terms.role_secrets:
            said = f"says it is a {role}, and this node cannot ask it to prove that"
            raise FrameError(f"{said}; start both with the same {option_of(role)}")

    @property
    def _by_role(self) -> bool:
        """Whether both are of one role that must be proved, and have a secret for it."""
        assert self.peer is not None
        role = self.peer.role
        return role == self.mine.role and role in self._terms.proved and bool(self._terms.role_secrets)

    @property
    def secret_option(self) -> str:
        """Where the secret comes from that is proved here, as an option of commands."""
        return option_of(short(self.mine.role)) if self.peer is not None and self._by_role else "--secret-file"

    def _prove(self) -> bytes:
        assert self.peer is not None
        ours = self._shown or self._keys[0]
        return frame(msgspec.msgpack.encode(self._proof(ours, self._dialled, self.mine, self.peer)))

    def _check_proof(self, body: bytes | memoryview) -> None:
        assert self.peer is not None
        try:
            told = msgspec.msgpack.decode(body, type=bytes)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"not a proof: {quote_for_log(error)}") from error
        for key in self._keys:
            if hmac.compare_digest(told, self._proof(key, not self._dialled, self.peer, self.mine)):
                self._shown = key
                return
        raise FrameError(f"does not know our secret; give both nodes the same {self.secret_option}")

    @property
    def _keys(self) -> tuple[bytes, ...]:
        return self._terms.role_secrets if self._by_role else self._terms.secrets

    @staticmethod
    def _proof(key: bytes, dialled: bool, speaker: Hello, listener: Hello) -> bytes:
        """What only one who knows the secret can say; MessagePack, so that no two inputs are the same bytes."""
        said = ("gapless proof", dialled, *list_fields(speaker), *list_fields(listener))
        return hmac.digest(key, msgspec.msgpack.encode(said), "sha256")


def short(role: str) -> str:
    """A role by its name alone, as certificates and options have it."""
    return role.rpartition("/")[2]


def option_of(role: str) -> str:
    """The option of commands for the secret that only nodes of this role share."""
    return f"--{role}-secret-file"


def check_store(ours: str, theirs: str) -> None:
    """Raises `FrameError` unless both work on one store: what a peer says of the streams of another is true there."""
    if theirs != ours:
        names = f"it has {quote_for_log(theirs) or 'none'}, and this node {ours or 'none'}"
        raise FrameError(f"works on another store: {names}; start both with the same --store")


MENDS: Final = {
    (
        False,
        True,
    ): "asks for a certificate; start this node with --tls-cert and --tls-key, or that one without --tls-ca",
    (False, False): "has a certificate that is not asked for here; start this node with --tls-ca, or that one without "
    "--tls-cert and --tls-key",
    (True, True): "asks for no certificate; start it with --tls-ca, or this node without --tls-cert and --tls-key",
    (True, False): "has no certificate; start it with --tls-cert and --tls-key, or this node without --tls-ca",
}
"""(we ask for certificates both ways, we dialled) -> what to do about a peer that sees it the other way."""
