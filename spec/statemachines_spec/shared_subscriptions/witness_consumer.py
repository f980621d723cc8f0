"""Witness consumer: a consumer as it is shipped up to its session: Agent, Borrower and the Witness that stands before
it.

Whoever likes may speak to it as a leader (`Lie`): under every epoch up to one that nobody has reached, with the numbers
that its borrower follows, as its own party or as a host.  All it cannot do is to speak under the name and life of
another, which the transport prevents.  What the Agent does with it is the shipped class's own work.

The claim is read when the store gets round to it (`Reading`), and what was read arrives later (`Arriving`), as a
failure (`Failing`), or never.  Numbers of reads begin anew when none is open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Ask, Event, Fsm, Node, Outgoing, Send, Stop, Tell, fresh, incarnation, node_of
from statemachines.shared_subscriptions.agent import Agent, Shared
from statemachines.shared_subscriptions.borrower import BORROWER, CONNECTED, BorrowerRecord
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import SERVICE, Read, StoreFailed
from statemachines.shared_subscriptions.message import (
    Grant,
    Invalidate,
    LeaderConnectResponse,
    PingResponse,
    Revoked,
)
from statemachines.shared_subscriptions.witness import ASKING, WITNESS, RestTimer, WitnessRecord
from statemachines_spec.explorer.actor import Actor, Crash, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import Party, begin, firings, step_party
from statemachines_spec.shared_subscriptions.consumer import (
    CRASHED,
    ENDED,
    FILTER,
    GOING_ON,
    GROUP,
    RUNNING,
    Consumer,
    ConsumerLocal,
    Promised,
)

LIAR = "liar~1"
"""A host that leads nothing; its parties are named after it."""


class PretenderLocal(msgspec.Struct, frozen=True, gc=False):
    """It needs to remember nothing."""


class Pretender(Actor):
    """The host of `LIAR`: whatever it is told, it says what it likes, which is an input of who hears it."""

    def __init__(self) -> None:
        super().__init__(node_of(LIAR))

    def initial(self) -> PretenderLocal:
        return PretenderLocal()

    def inputs(self, local: Any) -> tuple[Any, ...]:
        return ()

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction:
        return Reaction(local)


DOUBTED = 2
"""So many messages wait for a read of the claim."""


class Lie(Event, frozen=True, gc=False):
    """Somebody whom no claim names speaks to a borrower as a leader, under its own name."""

    sender: str
    message: Any


class Reading(Event, frozen=True, gc=False):
    """The group store gets round to the read that is open."""


class Arriving(Event, frozen=True, gc=False):
    """What was read arrives; the claim may be another by now."""


class Failing(Event, frozen=True, gc=False):
    """The group store does not do it, and says so."""


class WitnessedLocal(ConsumerLocal, frozen=True, gc=False):
    """`witness`: the machine that reads the claim; `doubted`: what waits for that, with its senders; `open`: the read
    that the store has not done yet, `answer`: what it has read."""

    witness: Party | None = None
    doubted: tuple[tuple[str, Any], ...] = ()
    open: Read | None = None
    answer: Any = None


class WitnessedConsumer(Consumer):
    """`lies`: the highest epoch that is lied about; `fails`: reads of the claim may fail."""

    def __init__(
        self, name: str, configuration: Configuration, *, lies: int, fails: bool = False, **options: Any
    ) -> None:
        super().__init__(name, configuration, **options)
        self.lies = lies
        self.fails = fails
        self.host = incarnation(name, 1)

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> WitnessedLocal:
        """As any consumer; its witness has read nothing."""
        record = WitnessRecord(f"{self.host}/witness-1", GROUP, FILTER, self.configuration)
        return WitnessedLocal(RUNNING, 1, 0, self._borrower(1, 0), witness=begin(WITNESS, record))

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (*super().machines, WITNESS)

    def inputs(self, local: ConsumerLocal) -> tuple[Any, ...]:
        assert isinstance(local, WitnessedLocal)
        if local.party is None or local.witness is None:
            return ()
        return (
            *super().inputs(local),
            *firings(WITNESS, local.witness, self.silent),
            *self._reads(local),
            *self._lies(local.party.record),
        )

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, WitnessedLocal)
        event = envelope.event
        if isinstance(event, Crash):
            return Reaction(WitnessedLocal(CRASHED, local.number, 0, None))
        if isinstance(event, Promised) or local.mode not in GOING_ON or local.witness is None:
            return super().react(local, envelope, watch)
        name = local.witness.record.id
        if isinstance(event, Reading):
            return Reaction(local, (), (Envelope(name, SERVICE, local.open),))
        if isinstance(event, Answer):
            return Reaction(replace(local, answer=event))
        life = Life(self, local, watch)
        closed = local
        match event:
            case Arriving() | Failing():
                assert local.open is not None
                answer = local.answer if isinstance(event, Arriving) else StoreFailed(local.open.n)
                closed = replace(local, open=None, answer=None)
                out = life.answer(name, answer, 0)
            case Lie(sender, message):
                out = life.receive(sender, message, 0)
            case RestTimer():
                out = life.feed(name, event, 0)
            case _ if envelope.sender:
                out = life.receive(envelope.sender, event, 0)
            case _:
                out = life.feed(life.borrower, event, 0)
        return self._done(life, closed, out)

    def canonical(self, local: WitnessedLocal) -> WitnessedLocal:
        """Reads are numbered from 0 where none is open."""
        if local.witness is None or local.witness.record.status is ASKING:
            return local
        return replace(local, witness=replace(local.witness, record=replace(local.witness.record, n=0)))

    def describe(self, local: ConsumerLocal) -> str:
        assert isinstance(local, WitnessedLocal)
        words = [super().describe(local)]
        if local.witness is not None:
            record = local.witness.record
            words.append(f"the claim names {record.leader or 'nobody'} (epoch {record.epoch}), {record.status.value}")
            words += [f"{sender} waits" for sender, _ in local.doubted]
        return "; ".join(words)

    # -- inside -------------------------------------------------------------------------------------------------

    def _reads(self, local: WitnessedLocal) -> Iterator[Event]:
        """What becomes of the read that is open."""
        if local.open is not None:
            yield Reading() if local.answer is None else Arriving()
            if self.fails:
                yield Failing()

    def _lies(self, record: BorrowerRecord) -> Iterator[Lie]:
        """Each that could do harm, under the registration that the borrower goes by."""
        registration = 1 if record.link is None else record.link.registration
        for epoch in range(1, self.lies + 1):
            pair = (record.id, epoch, registration)
            leader = f"{LIAR}/1" if record.link is None else record.link.leader
            yield Lie(f"{LIAR}/1", LeaderConnectResponse(record.id, f"{LIAR}/1", epoch, registration))
            yield Lie(LIAR, Invalidate(*pair))
            if record.status is not CONNECTED:
                continue
            yield Lie(f"{LIAR}/1", LeaderConnectResponse(record.id, leader, epoch, registration + 1))
            yield Lie(f"{LIAR}/1", PingResponse(*pair, record.ping_n))
            yield Lie(f"{LIAR}/1", Grant(*pair, "0.0/a", 1, 0))
            yield Lie(f"{LIAR}/1", Revoked(*pair, "0.0/a", 1))

    def _done(self, life: Life, before: WitnessedLocal, out: list[Outgoing]) -> Reaction:
        sends = tuple(Envelope(party, effect.to, effect.message) for party, effect in out if isinstance(effect, Send))
        asked = [effect.request for _, effect in out if isinstance(effect, Ask)]
        assert len(asked) + (before.open is not None) <= 1, "one read is open at a time"
        local = replace(life.local(before), open=asked[0] if asked else before.open)
        if local.number > self.lives:
            gone = fresh(self.host, local.number)
            return Reaction(
                WitnessedLocal(ENDED, self.lives, 0, None), tuple(one for one in sends if one.sender != gone)
            )
        settled = self._settled(local)
        return Reaction(settled if settled.party is not None else WitnessedLocal(ENDED, local.number, 0, None), sends)


class Life(Agent):
    """The shipped Agent as one local state says it is, for one reaction."""

    def __init__(self, actor: WitnessedConsumer, local: WitnessedLocal, watch: Watch | None) -> None:
        super().__init__(actor.host, actor.registry, actor.configuration)
        self.actor = actor
        self.watch = watch
        self.timers: dict[str, Party] = {}
        self._number = local.number
        self._witnessed = 1
        if local.party is None or local.witness is None:
            return
        self.id = fresh(self.host, 1)
        self.shared[self.id] = Shared(GROUP, FILTER)
        self.parties[local.party.record.id] = self.id
        self._party_of[self.id] = local.party.record.id
        witness = local.witness.record.id
        self._witnesses[GROUP, FILTER] = witness
        self._doubted[witness] = deque(local.doubted, maxlen=DOUBTED)
        self._put(BORROWER, local.party)
        self._put(WITNESS, local.witness)

    @property
    def borrower(self) -> str:
        """The borrower of the moment."""
        return self.borrower_of(self.id)

    def local(self, before: WitnessedLocal) -> WitnessedLocal:
        """What there is now, as a local state."""
        if not self.borrower:
            return WitnessedLocal(ENDED, self._number, 0, None)
        witness = self._witnesses[GROUP, FILTER]
        return replace(
            before,
            number=self._number,
            party=self.timers[self.borrower],
            witness=self.timers[witness],
            doubted=tuple(self._doubted[witness]),
        )

    # -- the mechanics of a host --------------------------------------------------------------------------------

    def add(self, node: Node[Any]) -> None:
        super().add(node)
        self.timers[node.name] = begin(node.fsm, node.record)

    def fire(self, now_ns: int) -> list[Outgoing]:
        """Nothing is due: what fires is an event of its own."""
        return []

    def fire_first(self, now_ns: int) -> list[Outgoing]:
        return []

    def feed(self, party: str, event: Event, now_ns: int) -> list[Outgoing]:
        """The event, and what the machines tell each other because of it."""
        out: list[Outgoing] = []
        queue: deque[tuple[str, Event]] = deque([(party, event)])
        while queue:
            name, one = queue.popleft()
            node = self.nodes.get(name)
            if node is None:
                continue
            self.timers[name], effects = step_party(node.fsm, self.timers[name], one, name, self.watch)
            node.record = self.timers[name].record
            for effect in effects:
                match effect:
                    case Stop():
                        self.remove(name)
                    case Tell(told):
                        inward = self.route_tell(name, told, now_ns)
                        queue.extend(() if inward is None else inward)
                    case Send() | Ask():
                        out.append((name, effect))
        return out

    def _put(self, fsm: Fsm[Any], party: Party) -> None:
        name = party.record.id
        self.nodes[name] = Node(fsm, party.record, name=name, now_ns=0)
        self.timers[name] = party


__all__ = ["LIAR", "Arriving", "Failing", "Lie", "Pretender", "Reading", "WitnessedConsumer", "WitnessedLocal"]
