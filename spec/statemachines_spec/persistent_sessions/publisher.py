"""Publisher: hands messages to the writers, and is told which of them are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.persistent_sessions.message import Written
from statemachines.persistent_sessions.writer_record import Hand
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch

PUBLISHER = "publisher"


class PublishTo(Event, frozen=True, gc=False):
    """A message matches the session's subscription, and goes to this writer; `more`: another follows at once."""

    writer: str
    message: str
    more: bool = False


class PublisherLocal(msgspec.Struct, frozen=True, gc=False):
    """The messages that were handed over."""

    handed: tuple[str, ...] = ()


class Publisher(Actor):
    """`messages`: what each writer gets, in any order if `jumbled` (their ids were stamped before), of this `qos`, and
    several at once if `together`; `untils`: from when on those are over that expire."""

    def __init__(
        self,
        messages: dict[str, tuple[str, ...]],
        *,
        jumbled: bool = False,
        together: bool = False,
        qos: int = 1,
        untils: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(PUBLISHER)
        self.messages = messages
        self.jumbled = jumbled
        self.together = together
        self.qos = qos
        self.untils = dict(untils or {})

    def initial(self) -> PublisherLocal:
        return PublisherLocal()

    def inputs(self, local: PublisherLocal) -> tuple[Any, ...]:
        found: list[Any] = []
        for writer, messages in self.messages.items():
            left = [one for one in messages if one not in local.handed]
            found += [PublishTo(writer, one) for one in (left if self.jumbled else left[:1])]
            if self.together and len(left) > 1:
                found.append(PublishTo(writer, left[0], True))
        return tuple(found)

    def react(self, local: PublisherLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Written):
            return Reaction(local)
        hand = Hand(event.message, "t", self.qos, self.untils.get(event.message, 0), event.more)
        call = Envelope(self.name, event.writer, hand)
        return Reaction(replace(local, handed=tuple(sorted((*local.handed, event.message)))), (), (call,))

    def describe(self, local: PublisherLocal) -> str:
        return f"has handed over {', '.join(local.handed) or 'nothing'}"

    def bounds(self) -> dict[str, str]:
        lines = {"messages": "; ".join(f"{len(messages)} to {writer}" for writer, messages in self.messages.items())}
        if self.untils:
            lines["expiry"] = ", ".join(f"{message} at {until}" for message, until in self.untils.items())
        return lines
