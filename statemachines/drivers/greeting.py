"""Greeting: how two nodes open a connection; no input or output of its own.

Each side sends a hello.  Where a secret is shared, the hello carries a nonce, and then both prove that they know the
secret: first the side that dialled, then the side that accepted, so that a stranger who dials is given nothing to try
secrets on.  A proof is HMAC-SHA256 over which side it is of, and over role, life and nonce of both: that of another
connection, of the other side, or of another node is worth nothing, and neither is our own, sent back to us.

A secret keeps strangers out.  It hides nothing, and does not help against somebody who sits on the line and lets the
greeting pass: for that there is TLS.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

import msgspec

from statemachines.wire import FrameError, Hello, decode_hello, encode_hello, frame, shown

NONCE_SIZE: Final = 32
PROOF_SIZE: Final = hashlib.sha256().digest_size

GREETING_MAX: Final = 1_024
"""Bytes of the largest frame before the greeting is over: a stranger fills no more of our memory."""


class Greeting:
    """Our side of one connection; it is over when `done`, and only then is anything that follows looked at.

    `mine` is our hello (its nonce empty where `secret` is None), `dialled` whether we made the connection, `names` what
    the peer's certificate is for (None: there is none to check, or none that names nodes); `has_store(role)`: whether
    a peer of this role must work on our store.
    """

    def __init__(
        self,
        mine: Hello,
        *peer_roles: str,
        dialled: bool,
        secret: bytes | None,
        names: frozenset[str] | None,
        has_store: Callable[[str], bool] = lambda role: True,
    ) -> None:
        assert (secret is None) == (not mine.nonce)
        self.mine = mine
        self.peer: Hello | None = None
        """What the peer says it is; believe it when `done`."""
        self.done = False
        self._peer_roles = peer_roles
        self._dialled = dialled
        self._secret = secret
        self._names = names
        self._has_store = has_store

    def begin(self) -> bytes:
        """The first frame to send."""
        mine = self.mine
        return encode_hello(mine.role, mine.life, nonce=mine.nonce, mutual=mine.mutual, store=mine.store)

    def feed(self, body: bytes | memoryview) -> bytes:
        """Take the next frame of the peer; what to send it.  Raises `FrameError` when it must be cut off."""
        if self.peer is None:
            self.peer = decode_hello(body, *self._peer_roles)
            self._check(self.peer)
            self.done = self._secret is None
            return self._prove() if self._secret is not None and self._dialled else b""
        self._check_proof(body)
        self.done = True
        return b"" if self._dialled else self._prove()

    @property
    def told_proof(self) -> bool:
        """We have proved that we know the secret, and the peer has not."""
        return self._dialled and self._secret is not None and self.peer is not None and not self.done

    def _check(self, peer: Hello) -> None:
        """Both sides judge both hellos alike, so that both can say what is wrong."""
        if peer.life == self.mine.life:
            raise FrameError("goes by our own name and number; give each node its own name and state directory")
        if self._secret is None and peer.nonce:
            raise FrameError("asks for a secret; start this node with --secret-file too, or that one without")
        if self._secret is not None and not peer.nonce:
            raise FrameError("shows no secret; start it with --secret-file too, or this node without")
        if self._secret is not None and len(peer.nonce) != NONCE_SIZE:
            raise FrameError(f"sent a nonce of {len(peer.nonce)} bytes; {NONCE_SIZE} are expected")
        if peer.mutual != self.mine.mutual:
            raise FrameError(MENDS[self.mine.mutual, self._dialled])
        if self._has_store(peer.role):
            check_store(self.mine.store, peer.store)
        if self._names is not None and peer.node not in self._names:
            listed = ", ".join(sorted(self._names)) or "nobody"
            raise FrameError(
                f"says it is {peer.node}, and its certificate is for {shown(listed)}; give it one for {peer.node}, or "
                "start it under a name of its certificate"
            )

    def _prove(self) -> bytes:
        assert self.peer is not None
        return frame(msgspec.msgpack.encode(self._proof(self._dialled, self.mine, self.peer)))

    def _check_proof(self, body: bytes | memoryview) -> None:
        assert self.peer is not None
        try:
            told = msgspec.msgpack.decode(body, type=bytes)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"not a proof: {shown(error)}") from error
        if not hmac.compare_digest(told, self._proof(not self._dialled, self.peer, self.mine)):
            raise FrameError("does not know our secret; give both nodes the same --secret-file")

    def _proof(self, dialled: bool, speaker: Hello, listener: Hello) -> bytes:
        """What only one who knows the secret can say; MessagePack, so that no two inputs are the same bytes."""
        assert self._secret is not None
        said = ("gapless proof", dialled, *said_of(speaker), *said_of(listener))
        return hmac.digest(self._secret, msgspec.msgpack.encode(said), "sha256")


def said_of(hello: Hello) -> tuple[int, str, str, bytes, bool, str]:
    """All that a hello says."""
    return hello.version, hello.role, hello.life, hello.nonce, hello.mutual, hello.store


def check_store(ours: str, theirs: str) -> None:
    """Raises `FrameError` unless both work on one store: what a peer says of the streams of another is true there."""
    if theirs != ours:
        names = f"it has {shown(theirs) or 'none'}, and this node {ours or 'none'}"
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
