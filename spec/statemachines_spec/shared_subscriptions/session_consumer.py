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

from statemachines.kernel import Answer, Ask, Event, Fsm, Process, Tell, in_order
from statemachines.shared_subscriptions.agent_process import BORROWERS
from statemachines.shared_subscriptions.borrower import (
    BorrowerRecord,
    OnDisconnect,
)
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.handler_process import HANDLER, SESSIONS
from statemachines.shared_subscriptions.private_subscription import AgentRecord, LeaveAll
from statemachines.shared_subscriptions.session import Ack, PollTimer, Take
from statemachines.shared_subscriptions.session_record import WAITING, Acknowledged, Deliver, SessionRecord
from statemachines.shared_subscriptions.stream_store import SERVICE as STREAM_STORE
from statemachines.shared_subscriptions.stream_store import Fetch
from statemachines_spec.explorer.actor import Envelope, Reaction, Wake, Watch
from statemachines_spec.explorer.naming import rebase_queue
from statemachines_spec.explorer.party import InternedParty
from statemachines_spec.explorer.process_steps import PartsTurn, ProcessParts, use_machine
from statemachines_spec.shared_subscriptions.consumer import (
    ENDED,
    FILTER,
    GOING_ON,
    HEARING,
    PAUSED,
    RUNNING,
    STANDING,
    Consumer,
    ConsumerLocal,
    ConsumerMode,
    subscribe,
)
from statemachines_spec.shared_subscriptions.variants import leave_out_witness

ACCOUNT = "account"
"""The component that is told what applications get and acknowledge."""


class Answering(Event, frozen=True, gc=False):
    """The stream store gets round to the fetch that is open."""


class Unheard(Event, frozen=True, gc=False):
    """The application acknowledges, and what is sent because of it is lost."""

    ack: Ack


class SessionLocal(ConsumerLocal, frozen=True, gc=False):
    """`open`: the fetch that the store has not answered yet."""

    open: Fetch | None = None

    @property
    def session(self) -> InternedParty | None:
        """What fetches and delivers."""
        return None if self.parts is None else self.parts.of_kind(SESSIONS.name)


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
        topic_filter: str = FILTER,
        buffer: int = 256,
        at_delivery: bool = False,
        fetches_wait: bool = False,
        losses: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(name, configuration, **options)
        self.filter = topic_filter
        self.buffer = buffer
        self.at_delivery = at_delivery
        self.fetches_wait = fetches_wait
        self.losses = losses

    def choose_process(self, fsm: Fsm[Any]) -> Process[Any]:
        return leave_out_witness(use_machine(HANDLER, BORROWERS.name, fsm))

    def make_record(self, life: str) -> AgentRecord:
        return replace(super().make_record(life), buffer=self.buffer)

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> SessionLocal:
        parts = subscribe(self.steps, self.make_record(self.host), self.filter, self.at_delivery)
        return SessionLocal(RUNNING, 1, parts)

    def inputs(self, local: ConsumerLocal) -> tuple[Any, ...]:
        assert isinstance(local, SessionLocal)
        if local.party is None or local.session is None:
            return ()
        if local.mode in STANDING:
            return tuple(self._passing(local))
        hears = local.mode is HEARING
        return (
            *((Wake(),) if hears else self._fired(local)),
            *((Answering(),) if local.open is not None else ()),
            *self._taking(local.session.record),
            *self._faults(local.party.record),
        )

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, SessionLocal)
        event = envelope.event
        if local.mode in (*GOING_ON, ENDED):
            if isinstance(event, Answering):
                assert local.session is not None
                asked = Envelope(local.session.record.id, STREAM_STORE, local.open)
                return Reaction(replace(local, open=None), (), (asked,))
            if isinstance(event, Unheard):
                return replace(self._feed(local, [event.ack], watch), sends=())
        return super().react(local, envelope, watch)

    def canonical(self, local: ConsumerLocal) -> ConsumerLocal:
        """Queues are numbered from 0; so are fetches where none is open, and pings where their number has no bound."""
        assert isinstance(local, SessionLocal)
        parts, party, session = local.parts, local.party, local.session
        if parts is None or party is None or session is None:
            return local
        if not self.pings and not party.record.outstanding:
            parts = parts.put(self.steps.changed(party, "pings from 0", number_pings))
        return replace(local, parts=parts.put(self.steps.changed(session, "numbers from 0", renumber_session)))

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

    def _take(self, turn: PartsTurn, local: ConsumerLocal, envelope: Envelope) -> None:
        match envelope.event:
            case OnDisconnect():
                turn.feed(turn.id, LeaveAll())
            case Take() | Ack() | PollTimer() as event:
                turn.feed(SESSIONS.id_of(turn.id), event)
            case Answer() as event:
                turn.feed(envelope.to, event)
            case _:
                super()._take(turn, local, envelope)

    def _done(self, turn: PartsTurn, before: ConsumerLocal, event: Any = None) -> Reaction:
        assert isinstance(before, SessionLocal)
        calls: list[Envelope] = []
        asked = before.open
        for party, effect in turn.out:
            match effect:
                case Ask(_, Fetch() as fetch) if self.fetches_wait:
                    asked = fetch
                case Ask(service, request):
                    calls.append(Envelope(party, service, request))
                case Tell(Deliver() | Acknowledged() as told):
                    calls.append(Envelope(party, ACCOUNT, told))
        reaction = super()._done(turn, replace(before, open=asked))
        return replace(reaction, calls=tuple(calls))

    def _end(self, local: ConsumerLocal, mode: ConsumerMode, parts: ProcessParts | None) -> ConsumerLocal:
        """Nothing is read any more."""
        return replace(super()._end(local, mode, parts), open=None)

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


def number_pings(record: BorrowerRecord) -> BorrowerRecord:
    """The same borrower, whose pings begin anew."""
    return replace(record, ping_n=0, ping_at_ns=0)


def renumber_session(record: SessionRecord) -> SessionRecord:
    """The same session with queues from 0 and, where no fetch is open, fetches from 0."""
    queues = {name: rebase_queue(getattr(record, name)) for name in ("to_fetch", "idle", "to_take")}
    record = replace(record, **queues)
    return replace(record, fetch_n=0) if record.status is WAITING else record
