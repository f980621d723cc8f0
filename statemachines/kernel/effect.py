"""Effects: all that a machine can do to the world, a closed set.

A driver performs the effects of one step in order.  Answers come back as events: a machine that must not send before
something is durable waits for the answer in a state of its own.  Events that arrive meanwhile wait.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from statemachines.kernel.event import Event, Message, TraceColumns


class Request(msgspec.Struct, frozen=True, gc=False):
    """What a machine asks of a service; `apply` of the service answers it."""

    columns: ClassVar[TraceColumns] = TraceColumns()


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send `message` to the party with the id `to` (its node is `identity.node_of(to)`)."""

    to: str
    message: Message


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Ask `service` for `request`; the answers are events of the machine that asked."""

    service: str
    request: Request


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Tell the host application (or the party that encloses this machine) that `event` happened."""

    event: Event


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """(Re)arm `timer` of the child instance `key` ("" = the machine itself) to fire at `deadline_ns`."""

    timer: str
    deadline_ns: int
    key: str = ""


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    """Disarm `timer` of the child instance `key`; a firing that is already on its way is a legal input."""

    timer: str
    key: str = ""


class Stop(msgspec.Struct, frozen=True, gc=False):
    """The machine is at its end; the driver forgets it."""


class SendAs(Send, frozen=True, gc=False):
    """Of a process alone: send `message` in the name of `speaker`, one of its parties, which may be gone."""

    speaker: str


class Begin(msgspec.Struct, frozen=True, gc=False):
    """Of a process alone: the party with this id begins, of this kind, with this record."""

    party: str
    kind: str
    record: Any


class Feed(msgspec.Struct, frozen=True, gc=False):
    """Of a process alone: `event` for one of its parties, or for itself, when its turn has come."""

    party: str
    event: Event


class Forget(msgspec.Struct, frozen=True, gc=False):
    """Of a process alone: the party is gone, with its timers."""

    party: str


Effect = Send | Ask | Tell | SetTimer | CancelTimer | Stop | Begin | Feed | Forget
Effects = tuple[Effect, ...]
