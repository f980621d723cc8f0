"""TraceRoles: which rows of its traces are deliveries, acknowledgements and publications, as a protocol declares it."""

from __future__ import annotations

from typing import Final

import msgspec

Rows = tuple[tuple[str, str], ...]
"""(kind, event) of rows: (("tell", "deliver"),)."""


class Companion(msgspec.Struct, frozen=True):
    """A row `of` this (kind, event) comes behind one of those that it `needs`, at its node and time, equal in
    `columns`."""

    of: tuple[str, str]
    needs: Rows
    columns: tuple[str, ...]


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
    stream_end: str = ""
    """What stands in the key behind the name of the stream ("": the key is the name)."""
    epoch: str = "term"
    """The column of its epochs ("": it has none)."""
    grant: str = "grant"
    """The column of its grants ("": it has none)."""
    repeats: tuple[str, ...] = ()
    """Events that a machine may take twice at one time, with nothing between."""
    partial_answers: tuple[str, ...] = ()
    """Answers of services that do not end their request."""
    serial: tuple[str, ...] = ()
    """Requests that an instance makes only when all that it asked before is answered."""
    forwarded: tuple[str, ...] = ()
    """Events that a machine gives to its children when it takes another one."""
    requests: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """(requests, the answers to them): each request is answered once.  What is named nowhere belongs together."""
    answers: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """(requests, answers that only these have), beside answers that several requests may have."""
    services: dict[str, tuple[str, ...]] = {}
    """Service -> the requests that go to it, and nowhere else."""
    companions: tuple[Companion, ...] = ()
    """Rows that come with others."""
    unsent: tuple[str, ...] = ()
    """Messages of machines that their host may deal with itself, without a row that says that they were sent."""
    unstepped: tuple[str, ...] = ()
    """Messages and tells of an instance that come of no step of its machine."""
    envelopes: tuple[str, ...] = ()
    """Messages in which nodes send what their machines, or others, have to say."""
    lies: tuple[str, ...] = ()
    """Faults that have a node say what is not so."""
    planned_faults: tuple[str, ...] = ()
    """Faults that are counted, and come to nothing where their process dies of something else before."""
    silent_losses: bool = False
    """Connections break, and no row says what was on its way."""
    left_out: dict[str, str] = {}
    """Kinds of damage that make no trace of this protocol wrong, each with the reason."""


NO_ROLES: Final = TraceRoles()
