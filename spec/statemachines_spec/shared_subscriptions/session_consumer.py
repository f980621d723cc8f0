"""SessionConsumer: a session with one subscription: the shipped process `HANDLER`, with its borrower and its session.

The witness is left out: the claim always names who speaks (`process_variants`).  The application takes one message at a
time, whenever something is there, and acknowledges what it was given one by one in any order.  What it is told goes to
the `Account`.  A fetch is answered at once, or later (`Answering`).

Numbers of fetches begin anew when none is open, and so do those of pings where no copies can be about; queues are
numbered from their head: nothing that the machines do later can tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer, Ask, Event, Fsm, Send, Tell, fresh, in_order, incarnation
from statemachines.shared_subscriptions.agent_process import BORROWERS
from statemachines.shared_subscriptions.agent_record import AgentRecord, EndSubscription, LeaveAll
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    CONNECTED,
    CONNECTING,
    BorrowerRecord,
    OnDisconnect,
    OnUnsubscribe,
)
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.handler_process import HANDLER, SESSIONS
from statemachines.shared_subscriptions.session import SESSION, Ack, PollTimer, Take
from statemachines.shared_subscriptions.session_record import WAITING, Acknowledged, Deliver, SessionRecord
from statemachines.shared_subscriptions.stream_store import SERVICE as STREAM_STORE
from statemachines.shared_subscriptions.stream_store import Fetch
from statemachines_spec.explorer.actor import Crash, Envelope, Reaction, Wake, Watch
from statemachines_spec.explorer.naming import rebase_queue
from statemachines_spec.explorer.party import InternedParty, firings
from statemachines_spec.explorer.process_steps import PartsTurn, ProcessPart, ProcessParts, ProcessSteps
from statemachines_spec.shared_subscriptions.agent_consumer import limit_lives, subscribe
from statemachines_spec.shared_subscriptions.consumer import (
    CRASHED,
    ENDED,
    FILTER,
    GOING_ON,
    HEARING,
    PAUSED,
    RUNNING,
    STANDING,
    Consumer,
    ConsumerLocal,
)
from statemachines_spec.shared_subscriptions.process_variants import leave_out_witness, use_machine

ACCOUNT = "account"
"""The component that is told what applications get and acknowledge."""


class Answering(Event, frozen=True, gc=False):
    """The stream store gets round to the fetch that is open."""


class Unheard(Event, frozen=True, gc=False):
    """The application acknowledges, and what is sent because of it is lost."""

    ack: Ack


class SessionLocal(ConsumerLocal, frozen=True, gc=False):
    """`party` is the borrower of the moment; `own`: what the process knows; `open`: the fetch that the store has not
    answered yet."""

    own: InternedParty | None = None
    session: InternedParty | None = None
    open: Fetch | None = None

    def parts(self) -> ProcessParts:
        """The process."""
        assert self.own is not None
        pairs = ((SESSIONS.name, self.session), (BORROWERS.name, self.party))
        return ProcessParts(self.own, tuple(ProcessPart(kind, one) for kind, one in pairs if one is not None))


class SessionConsumer(Consumer):
    """`lives`, `pings` and `offsets` as for a `Consumer`; `pings` 0: any number, for networks that double nothing (a
    borrower beyond `lives` is then cut: nothing is claimed of what comes after).  `buffer`: how far the session fetches
    ahead; `at_delivery`: messages are acknowledged when they are handed over; `fetches_wait`: a fetch is answered
    later; `losses`: what an acknowledgement sends may be lost."""

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        *,
        fsm: Fsm[Any] = BORROWER,
        registry: str = "leader-1",
        lives: int = 1,
        pings: int = 2,
        offsets: int = 1,
        faults: tuple[type[Event], ...] = (),
        silent: tuple[str, ...] = (),
        topic_filter: str = FILTER,
        buffer: int = 256,
        at_delivery: bool = False,
        fetches_wait: bool = False,
        losses: bool = False,
    ) -> None:
        super().__init__(
            name,
            configuration,
            fsm=fsm,
            registry=registry,
            lives=lives,
            pings=pings,
            offsets=offsets,
            faults=faults,
            silent=silent,
        )
        self.filter = topic_filter
        self.buffer = buffer
        self.at_delivery = at_delivery
        self.fetches_wait = fetches_wait
        self.losses = losses
        self.host = incarnation(name, 1)
        self.process = leave_out_witness(use_machine(HANDLER, BORROWERS.name, self.fsm))
        self.steps = ProcessSteps(self.process)

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> SessionLocal:
        record = AgentRecord(self.host, (self.registry,), self.configuration, buffer=self.buffer)
        return self._local(RUNNING, subscribe(self.steps, record, self.filter, self.at_delivery))

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return self.process.machines

    def inputs(self, local: ConsumerLocal) -> tuple[Any, ...]:
        assert isinstance(local, SessionLocal)
        if local.party is None or local.session is None:
            return ()
        if local.mode in STANDING:
            return tuple(self._passing(local))
        hears = local.mode is HEARING
        return (
            *((Wake(),) if hears else firings(self.fsm, local.party, self.silent)),
            *(() if hears else firings(SESSION, local.session, self.silent)),
            *((Answering(),) if local.open is not None else ()),
            *self._taking(local.session.record),
            *self._faults(local.party.record),
        )

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, SessionLocal)
        event = envelope.event
        if isinstance(event, Crash):
            return Reaction(SessionLocal(CRASHED, local.number, 0, None))
        if local.mode in (*GOING_ON, ENDED):
            if isinstance(event, Answering):
                assert local.session is not None
                asked = Envelope(local.session.record.id, STREAM_STORE, local.open)
                return Reaction(replace(local, open=None), (), (asked,))
            if envelope.sender:
                return self._over(local, self._receive(local, envelope, watch), watch)
            if isinstance(event, Unheard):
                return replace(self._step(local, [event.ack], watch), sends=())
        return super().react(local, envelope, watch)

    def canonical(self, local: SessionLocal) -> SessionLocal:
        """Queues are numbered from 0; so are fetches where none is open, and pings where their number has no bound."""
        party, session = local.party, local.session
        if party is None or session is None:
            return local
        if not self.pings and not party.record.outstanding:
            party = self.steps.changed(party, "pings from 0", number_pings)
        return replace(local, party=party, session=self.steps.changed(session, "numbers from 0", renumber_session))

    def within(self, local: ConsumerLocal) -> bool:
        if not self.pings:
            return local.number <= self.lives
        return super().within(local)

    def describe(self, local: ConsumerLocal) -> str:
        assert isinstance(local, SessionLocal)
        words = [super().describe(local)]
        readings = () if local.session is None else in_order(local.session.record.readings)
        for _, reading in readings:
            text = f"reading {reading.stream} under grant {reading.grant}: {reading.progress} acknowledged"
            if reading.acked:
                text += f" (and {', '.join(f'{first} to {last}' for first, last in in_order(reading.acked))})"
            text += f", {reading.delivered} delivered, {reading.fetched} fetched"
            words.append(text + (", ended" if reading.ended else "") + (", finishing" if reading.finishing else ""))
        return "; ".join(words)

    # -- reactions ----------------------------------------------------------------------------------------------

    def _receive(self, local: SessionLocal, envelope: Envelope, watch: Watch | None) -> Reaction:
        """What a leader says to one of the borrowers, living or gone; what a store answers."""
        turn = PartsTurn(self.steps, local.parts(), watch)
        if isinstance(envelope.event, Answer):
            turn.feed(envelope.to, envelope.event)
        else:
            turn.receive(envelope.sender, envelope.to, envelope.event)
        return self._done(turn, local)

    def _step(self, local: ConsumerLocal, events: list[Event], watch: Watch | None) -> Reaction:
        """Events of the borrower of the moment, of its session, or of the client."""
        assert isinstance(local, SessionLocal)
        turn = PartsTurn(self.steps, local.parts(), watch)
        name = "" if local.party is None else local.party.record.id
        for event in events:
            match event:
                case OnUnsubscribe():
                    turn.feed(self.host, EndSubscription(fresh(self.host, 1)))
                case OnDisconnect():
                    turn.feed(self.host, LeaveAll())
                case Take() | Ack() | PollTimer():
                    turn.feed(SESSIONS.id_of(self.host), event)
                case _:
                    turn.feed(name, event)
        return self._done(turn, local)

    def _done(self, turn: PartsTurn, before: SessionLocal) -> Reaction:
        sends: list[Envelope] = []
        calls: list[Envelope] = []
        asked = before.open
        for party, effect in turn.out:
            match effect:
                case Send(to, message):
                    sends.append(Envelope(party, to, message))
                case Ask(_, Fetch() as fetch) if self.fetches_wait:
                    asked = fetch
                case Ask(service, request):
                    calls.append(Envelope(party, service, request))
                case Tell(Deliver() | Acknowledged() as event):
                    calls.append(Envelope(party, ACCOUNT, event))
        parts = turn.parts()
        if self.pings:
            beyond = fresh(self.host, self.lives + 1)
            sends = [one for one in sends if one.sender != beyond]
            parts = limit_lives(self.steps, parts, self.lives)
        local = replace(self._local(before.mode, parts), promised=before.promised)
        if local.mode is not ENDED:
            local = replace(local, open=asked)
        return Reaction(self._settled(local), tuple(sends), tuple(calls))

    @staticmethod
    def _local(mode: Any, parts: ProcessParts) -> SessionLocal:
        """What there is now: without a borrower the subscription has ended, and nothing is read."""
        own, party = parts.own, parts.of_kind(BORROWERS.name)
        if party is None:
            return SessionLocal(ENDED, own.record.number, 0, None, own=own)
        return SessionLocal(mode, own.record.number, 0, party, own=own, session=parts.of_kind(SESSIONS.name))

    def _overdue(self, local: ConsumerLocal) -> Iterator[Event]:
        """The poll, then the ping timeout."""
        assert isinstance(local, SessionLocal)
        if local.mode is not PAUSED and local.session is not None and local.session.timers:
            yield PollTimer()
        yield from super()._overdue(local)

    # -- what may happen ----------------------------------------------------------------------------------------

    def _taking(self, record: SessionRecord) -> Iterator[Event]:
        if record.to_take:
            yield Take(1)
        for _, reading in in_order(record.readings):
            known = [range(first, last + 1) for first, last in in_order(reading.acked)]
            for offset in range(reading.progress, reading.delivered):
                if not any(offset in one for one in known):
                    ack = Ack(reading.owner, reading.stream, reading.grant, offset, offset)
                    yield ack
                    if self.losses:
                        yield Unheard(ack)

    def _faults(self, record: Any) -> Iterator[Event]:
        for fault in self.faults:
            if fault in (OnUnsubscribe, OnDisconnect) and record.status not in (CONNECTING, CONNECTED):
                continue
            yield fault()


def number_pings(record: BorrowerRecord) -> BorrowerRecord:
    """The same borrower, whose pings begin anew."""
    return replace(record, ping_n=0, ping_at_ns=0)


def renumber_session(record: SessionRecord) -> SessionRecord:
    """The same session with queues from 0 and, where no fetch is open, fetches from 0."""
    queues = {name: rebase_queue(getattr(record, name)) for name in ("to_fetch", "idle", "to_take")}
    record = replace(record, **queues)
    return replace(record, fetch_n=0) if record.status is WAITING else record
