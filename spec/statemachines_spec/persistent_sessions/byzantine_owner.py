"""ByzantineOwner: an owner that says that it yields, and hands over what it likes."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import EpochRows
from statemachines.persistent_sessions.takeover_message import (
    BeginTakeover,
    EndTakeover,
    TakeoverBegun,
    TakeoverEnded,
)
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch


class Lie(Event, frozen=True, gc=False):
    """It answers with its tale of this number."""

    tale: int


class LiarLocal(msgspec.Struct, frozen=True, gc=False):
    """Who waits for an answer (None: nobody)."""

    asked: EndTakeover | None = None


class ByzantineOwner(Actor):
    """It knows the names of the `writers`, and which messages there are."""

    def __init__(self, name: str, writers: tuple[str, ...]) -> None:
        super().__init__(name)
        self.tales = tales(writers[0])

    def initial(self) -> LiarLocal:
        return LiarLocal()

    def inputs(self, local: LiarLocal) -> tuple[Any, ...]:
        return () if local.asked is None else tuple(Lie(tale) for tale in range(len(self.tales)))

    def react(self, local: LiarLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case BeginTakeover(client, to, token):
                return Reaction(local, (Envelope(self.name, to, TakeoverBegun(client, token)),))
            case EndTakeover():
                return Reaction(replace(local, asked=envelope.event))
            case Lie(tale):
                assert local.asked is not None
                answer = TakeoverEnded(local.asked.client, local.asked.token, self.tales[tale])
                return Reaction(LiarLocal(), (Envelope(self.name, local.asked.to, answer),))
        return Reaction(local)

    def describe(self, local: LiarLocal) -> str:
        return "is asked for what it has" if local.asked else "waits"

    def bounds(self) -> dict[str, str]:
        return {"tales": str(len(self.tales))}


def tales(writer: str) -> tuple[tuple[EpochRows, ...], ...]:
    """The first two messages of `writer` are 11 and 12."""
    first, second = Queued(1, "11", "t"), Queued(2, "12", "t")
    return (
        (),
        (EpochRows(writer, 1, (first, second)),),
        (EpochRows(writer, 1, (second,)),),
        (EpochRows(writer, 1, (second, first, first)),),
        (EpochRows(writer, 1, (Queued(1, "12", "t"), Queued(2, "11", "t"))),),
        (EpochRows(writer, 1, (first, Queued(2, "no message", "t"), Queued(3, "another", "t"))),),
        (EpochRows(writer, 2, (first,)), EpochRows("writer-9", 1, (first,))),
    )
