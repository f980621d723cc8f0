"""An application that waits: a session, its store, and handlers that acknowledge messages and give them back.

One task takes messages and starts a handler for each.  It may acknowledge durably itself: then it takes nothing more
until the group store has that acknowledgement, or nobody can know.  Handlers give a message back a few times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Event
from statemachines.shared_subscriptions import returned_messages
from statemachines.shared_subscriptions.returned_messages import is_acknowledged
from statemachines.shared_subscriptions.session import SESSION, Ack, Admit, Nack, SessionRecord, Take
from statemachines.shared_subscriptions.session_record import StreamReading, reading_key
from statemachines.shared_subscriptions.stream import Install
from statemachines.shared_subscriptions.stream_store import Fetch, Fetched, MessageBatch
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import Party, begin, list_firings, step_party
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, View
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions.session_consumer import renumber_session

OWNER, STREAM, MESSAGES, NACKS = "x", "a", 3, 2
NAME: Final = "application-waits"
ABOUT: Final = {NAME: "handlers give messages back while the task that takes them waits for a durable acknowledgement"}


class DurableAck(Event, frozen=True, gc=False):
    """The task that takes messages acknowledges this one, and waits until that is durable."""

    ack: Ack


class ProgressStored(Event, frozen=True, gc=False):
    """The group store has the progress that the task waits for."""


class ApplicationLocal(msgspec.Struct, frozen=True, gc=False):
    """`asked`: the fetch that is open; `awaited`: behind this offset the task waits for the progress (-1: for nothing);
    `outcome`: of its last durable acknowledgement; `nacks`: so many messages may still be given back; `returned`: those
    that are, until they are handed over again."""

    party: Party
    asked: Fetch | None = None
    awaited: int = -1
    outcome: int = 0
    nacks: int = NACKS
    returned: tuple[int, ...] = ()

    @property
    def reading(self) -> StreamReading:
        """What is read of the one stream."""
        found = self.party.record.readings[reading_key(OWNER, STREAM)]
        assert isinstance(found, StreamReading)
        return found


UNKNOWN, STORED, AT_ONCE, LATER = range(4)
"""Outcomes: none yet; durable; given up at once, and while the task waited."""


class WaitingApplication(Actor):
    """The session with its application and its store."""

    fsm = SESSION

    def initial(self) -> ApplicationLocal:
        local = ApplicationLocal(begin(SESSION, SessionRecord("session", buffer=MESSAGES)))
        for event in (Admit(OWNER, held=True), Install(OWNER, STREAM, 1, 0)):
            local = self._feed(local, event, None)
        return local

    def inputs(self, local: ApplicationLocal) -> tuple[Any, ...]:
        answers = () if local.asked is None else (answer(local.asked),)
        fired = list_firings(SESSION, local.party, self.silent, None)
        return (*fired, *answers, *self._handlers(local), *self._task(local))

    def _handlers(self, local: ApplicationLocal) -> Iterator[Event]:
        """Each has one message in hand, which may be on its way again since one before it was given back."""
        reading = local.reading
        for offset in range(reading.progress, max(reading.delivered, reading.handed)):
            if offset in local.returned or is_acknowledged(reading, offset):
                continue
            yield Ack(OWNER, STREAM, 1, offset, offset)
            if local.nacks and offset < reading.delivered:
                yield Nack(OWNER, STREAM, 1, offset)

    def _task(self, local: ApplicationLocal) -> Iterator[Event]:
        if local.awaited >= 0:
            if local.reading.progress > local.awaited:
                yield ProgressStored()
            return
        if local.party.record.to_take:
            yield Take(1)
        yield from (DurableAck(one) for one in self._handlers(local) if isinstance(one, Ack))

    def react(self, local: ApplicationLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction:
        match envelope.event:
            case ProgressStored():
                return Reaction(replace(local, awaited=-1, outcome=STORED))
            case DurableAck(ack):
                local = replace(self._feed(local, ack, watch), awaited=ack.first)
                return Reaction(give_up(local, AT_ONCE))
            case Nack() as event:
                local = replace(self._feed(local, event, watch), nacks=local.nacks - 1)
                local = replace(local, returned=tuple(sorted({*local.returned, event.offset})))
                return Reaction(give_up(local, LATER))
            case event:
                return Reaction(self._feed(local, event, watch))

    def _feed(self, local: ApplicationLocal, event: Any, watch: Watch | None) -> ApplicationLocal:
        party, effects = step_party(SESSION, local.party, event, self.name, watch)
        asked = None if isinstance(event, Fetched) else local.asked
        for effect in effects:
            if isinstance(effect, Ask) and isinstance(effect.request, Fetch):
                asked = effect.request
        local = replace(local, party=party, asked=asked)
        if not isinstance(event, Take):
            return local
        delivered = local.reading.delivered
        return replace(local, returned=tuple(offset for offset in local.returned if offset >= delivered))

    def canonical(self, local: ApplicationLocal) -> ApplicationLocal:
        return replace(local, party=replace(local.party, record=renumber_session(local.party.record)))

    def describe(self, local: ApplicationLocal) -> str:
        reading = local.reading
        waits = f"; waits behind {local.awaited}" if local.awaited >= 0 else ""
        returned = f"; {local.returned} given back" if local.returned else ""
        return f"{reading.progress} acknowledged, {reading.delivered} delivered{returned}{waits}"


def answer(asked: Fetch) -> Fetched:
    """All that the stream has."""
    parts = (MessageBatch(one.stream, one.grant, one.first, MESSAGES - 1, True) for one in asked.slices)
    return Fetched(asked.n, tuple(parts))


def give_up(local: ApplicationLocal, outcome: int) -> ApplicationLocal:
    """The task hears that nobody can know, where it would wait for itself."""
    if local.awaited < 0 or returned_messages.find_awaited(local.reading, local.awaited) is None:
        return local
    return replace(local, awaited=-1, outcome=outcome)


def is_waiting_for_itself(local: ApplicationLocal) -> bool:
    """A message before the awaited one is neither acknowledged nor in anybody's hands."""
    reading = local.reading
    missing = range(reading.delivered, local.awaited + 1)
    return any(offset >= reading.progress and not is_acknowledged(reading, offset) for offset in missing)


def build(name: str) -> System:
    """The closed system of one component."""
    member = WaitingApplication("member")
    waits = View(member.name, 2, lambda local: int(is_waiting_for_itself(local)))
    outcome = View(member.name, 4, lambda local: local.outcome)
    unread = View(member.name, 2, lambda local: int(local.reading.progress < MESSAGES))
    properties: tuple[Property, ...] = (
        Always("L13", "the task that takes messages never waits for what it has to take", (waits,), lambda at: not at),
        *(
            Sometimes(f"L13 {text}", f"a durable acknowledgement {text}", (outcome,), lambda at, n=n: at == n)
            for n, text in ((STORED, "returns"), (AT_ONCE, "raises at once"), (LATER, "raises later"))
        ),
    )
    owed = Eventually("L5 waits", "every message is acknowledged, whoever waits", (unread,), bool)
    return System(name, ABOUT[name], (member,), properties=properties, obligations=(owed,))
