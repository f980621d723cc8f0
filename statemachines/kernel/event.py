"""Events: everything that can happen to a machine, as frozen values.

Four kinds, by who is at fault when one arrives where it is illegal: a `Message` comes from a peer, a `Call` from
the host application, an `Answer` from a service, a `TimerFired` from the driver's clock.  The name of an event, as it
stands in traces, diagrams and on the wire, is its class name in snake case (`LeaderWanted` -> `leader_wanted`).

An event about numbered things (offsets, samples, positions) carries a contiguous range `first`..`last`, so that one
step can stand for a batch.  Traces read the fields `stream` (or `subject`, `source`, `cursor`), `epoch`, `grant`,
`first`, `last` (or `progress`) of an event by these names.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec


def snake(name: str) -> str:
    """`LeaderWanted` -> `leader_wanted`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened: the input of a step."""


class Message(Event, frozen=True, gc=False, tag=snake, array_like=True):
    """From a peer, over a network that may lose, duplicate, delay and reorder."""


class Call(Event, frozen=True, gc=False):
    """From the host application."""


class Answer(Event, frozen=True, gc=False):
    """From a service, to a request of ours."""


class TimerFired(Event, frozen=True, gc=False):
    """A timer of ours is due.  `key` names the child instance it belongs to ("" for the machine itself)."""

    key: str = ""


def name_of(event: type[Any]) -> str:
    """The name of an event (or request) type in traces, diagrams and on the wire."""
    name = _NAMES.get(event)
    if name is None:
        name = _NAMES[event] = snake(event.__name__)
    return name


_NAMES: dict[type[Any], str] = {}
