"""Failure: what comes of a request that a database does not carry out; the same words for every database."""

from __future__ import annotations

from typing import Final

from statemachines.kernel import ConfigurationError, GaplessError

BUSY_S: Final = 2.0
"""How long a transaction waits for another process's; after that the request has failed."""


class StoreUnavailable(GaplessError):
    """The database did not carry a request out (it was busy for too long, or the disk is full or broken); nothing of
    it was written, and it can be repeated."""


class OutcomeOpen(StoreUnavailable):
    """The connection was lost before the answer came, and the database did not come back: the request was carried
    out whole, or nothing of it was."""


class StoreAway(ConfigurationError):
    """The server cannot be reached: the URL is wrong, or the server is not there yet."""


class StoreDamaged(GaplessError):
    """The database is not what was written; repeating does not help."""


def find_upper_bound(prefix: str) -> bytes:
    """Greater than every text that begins with `prefix`, as the bytes of a text: no UTF-8 has the byte 255."""
    return prefix.encode() + b"\xff"
