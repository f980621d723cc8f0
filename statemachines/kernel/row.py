"""Rows: the lines of a table.

A table reads top to bottom: the first row of a cell (state x event) whose guard holds is taken.  Every cell is
decided, by rows, by an `Ignore` that names its events and its clause, or by a `Refuse` (a protocol error).  The event
type, the action and the guard of a row share a type variable, so a wrong wiring is an error in the editor.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from statemachines.kernel.effect import Effects
from statemachines.kernel.event import Event

R = TypeVar("R", bound=msgspec.Struct)
E = TypeVar("E", bound=Event)

Guard = Callable[[R, E], bool]
Action = Callable[[R, E, int], tuple[R, Effects]]


class _Sign(Enum):
    STAY = "stay"
    ANY = "any"


STAY: Final = _Sign.STAY
"""Destination of an internal row: the state is not left, no timer is touched."""

ANY: Final = _Sign.ANY
"""Source of a row that holds in every state that is not final."""


class Child(Protocol):
    """What a child step knows of its machine: its name, and the key of an instance."""

    name: str
    full_name: str
    key: Callable[[Any], str]


class ChildStep(msgspec.Struct, frozen=True, gc=False):
    """A step that a parent delegated: what `Step` is for the parent, for the trace.

    `record` is the child's afterwards; `number` tells instances apart that follow each other under one key (-1:
    nothing does).  The names are put together only where somebody looks.
    """

    fsm: Child
    record: Any
    number: int
    event: Event
    source: Enum
    row: int

    @property
    def machine(self) -> str:
        """The name of the child machine."""
        return self.fsm.name

    @property
    def full_machine(self) -> str:
        """Its name as traces have it."""
        return self.fsm.full_name

    @property
    def instance(self) -> str:
        """The instance as traces name it."""
        key = self.fsm.key(self.record)
        return key if self.number < 0 else f"{key}#{self.number}"

    @property
    def dest(self) -> Enum:
        """The state afterwards."""
        status: Enum = self.record.status
        return status


class Delegate(Generic[R, E]):
    """An action that hands the event on to child machines and also returns their steps."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[[R, E, int], tuple[R, Effects, tuple[ChildStep, ...]]]) -> None:
        self.run = run


class Row:
    """On event type `on`, in `source`: if `when` holds, `do`, and go `to`; because of `clause`.

    `source` is a state, a tuple of states, or ANY.  `to` is a state (its own source: reflexive, left and entered
    again) or STAY (internal).  `do(record, event, now_ns)` returns the new record and the effects; it decides
    nothing.  `when(record, event)` does not see the clock.

    The type variables are those of `__init__`, not of the class: a table may then be a plain tuple, annotated or not,
    and each row is still checked on its own.
    """

    __slots__ = ("clause", "do", "on", "source", "to", "when")

    def __init__(
        self,
        on: type[E],
        source: Enum | tuple[Enum, ...],
        to: Enum,
        do: Action[R, E] | Delegate[R, E] | None,
        when: Guard[R, E] | None,
        clause: str,
    ) -> None:
        self.on: type[Event] = on
        self.source = source
        self.to = to
        self.do: Any = do
        self.when: Any = when
        self.clause = clause


class Ignore:
    """The named events are dropped on purpose in `source`; each event is one numbered row."""

    __slots__ = ("clause", "on", "source")

    def __init__(self, on: tuple[type[Event], ...], source: Enum | tuple[Enum, ...], clause: str) -> None:
        self.on = on
        self.source = source
        self.clause = clause


class Refuse(Ignore):
    """The named events are protocol errors in `source`: the host's for a call, the peer's for a message."""

    __slots__ = ()


AnyRow = Row | Ignore
