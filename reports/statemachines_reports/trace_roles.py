"""TraceRoles: which rows of its traces are deliveries, acknowledgements and publications, as a protocol declares it."""

from __future__ import annotations

from typing import Final

import msgspec

Rows = tuple[tuple[str, str], ...]
"""(kind, event) of rows: (("tell", "deliver"),)."""


class TraceRoles(msgspec.Struct, frozen=True):
    """What neutral code must know of a protocol's traces.

    An acknowledgement belongs to the deliveries of the same key, and of the same number or range.
    """

    deliveries: Rows = ()
    """What the application gets."""
    acknowledgements: Rows = ()
    """What says that the application has dealt with a delivery."""
    publications: Rows = ()
    """What is published, reserved or stamped."""
    number: tuple[str, ...] = ("first", "last")
    """The columns that number a delivery in its stream."""
    key: str = "key"
    """The column that names the stream."""
    epoch: str = "term"
    """The column of its epochs ("": it has none)."""
    grant: str = "grant"
    """The column of its grants ("": it has none)."""
    left_out: dict[str, str] = {}
    """Kinds of damage that make no trace of this protocol wrong, each with the reason."""


NO_ROLES: Final = TraceRoles()
