"""Stores: the journal, in which the server keeps its tokens, and the vault, which the lock is there to guard.

Both are pure services: `apply(state, request, now_ns)` is what they mean, wherever they run.
"""

from __future__ import annotations

import msgspec

from statemachines.kernel import Answer, Request

JOURNAL, VAULT = "journal", "vault"


class Load(Request, frozen=True, gc=False):
    """The highest token that was ever kept."""

    n: int


class Save(Request, frozen=True, gc=False):
    """Keep `token`."""

    n: int
    token: int


class Loaded(Answer, frozen=True, gc=False):
    """The answer to `Load`."""

    n: int
    token: int


class Saved(Answer, frozen=True, gc=False):
    """It is durable."""

    n: int


class JournalFailed(Answer, frozen=True, gc=False):
    """Request `n` may have been carried out, or not."""

    n: int


class Journal:
    """State: the highest token."""

    name = JOURNAL

    def initial(self) -> int:
        return 0

    def apply(self, state: int, request: Request, now_ns: int) -> tuple[int, tuple[Answer, ...]]:
        if isinstance(request, Save):
            return max(state, request.token), (Saved(request.n),)
        assert isinstance(request, Load)
        return state, (Loaded(request.n, state),)


class Write(Request, frozen=True, gc=False):
    """Write `value` under `token`."""

    n: int
    token: int
    value: str


class Wrote(Answer, frozen=True, gc=False):
    """Request `n` was written."""

    n: int


class Fenced(Answer, frozen=True, gc=False):
    """It was not: somebody has written under `token`, which is higher."""

    n: int
    token: int


class VaultFailed(Answer, frozen=True, gc=False):
    """Request `n` may have been carried out, or not."""

    n: int


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What the vault has: the last value, and under which token."""

    token: int = 0
    value: str = ""


class Vault:
    """`honours`: it refuses a write whose token is below the highest one that it has seen (LK-12)."""

    name = VAULT

    def __init__(self, honours: bool = True) -> None:
        self.honours = honours

    def initial(self) -> Kept:
        return Kept()

    def apply(self, state: Kept, request: Request, now_ns: int) -> tuple[Kept, tuple[Answer, ...]]:
        assert isinstance(request, Write)
        if self.honours and request.token < state.token:
            return state, (Fenced(request.n, state.token),)
        return Kept(request.token, request.value), (Wrote(request.n),)
