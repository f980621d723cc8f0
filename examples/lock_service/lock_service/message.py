"""Messages between holders and the server."""

from __future__ import annotations

from typing import Annotated

import msgspec

from statemachines.kernel import Message


class Acquire(Message, frozen=True, gc=False):
    """Attempt `n` of `holder` to get the lock."""

    holder: str
    n: int


class Renew(Message, frozen=True, gc=False):
    """Attempt `n` of `holder` to keep it."""

    holder: str
    n: int
    token: int


class Release(Message, frozen=True, gc=False):
    """`holder` does not need it any more; `n` is its last attempt."""

    holder: str
    n: int
    token: int


class Granted(Message, frozen=True, gc=False):
    """The lock is yours under `token`, from 1 on, for a lease from the moment you sent attempt `n`."""

    n: int
    token: Annotated[int, msgspec.Meta(ge=1)]


class Denied(Message, frozen=True, gc=False):
    """It is not, as far as attempt `n` goes."""

    n: int


FromHolder = Acquire | Renew | Release
FromServer = Granted | Denied
