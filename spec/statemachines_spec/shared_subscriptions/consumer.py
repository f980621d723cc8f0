"""Consumer: a process with one subscription: the shipped Agent, without its witness, and as little of a session as its
borrower needs.

In place of the witness stands an environment: the claim always names who speaks, and the epoch that the last borrower
had seen.  Borrowers follow each other up to `lives` of them.  The session is what the borrower's own record says of its
streams: while one is granted, messages may be acknowledged one by one up to `offsets`; once it is to be finished, the
final progress may come at any time.

A process may stand still (`Pause`) while time passes.  When it goes on (`Wake`), its lease ends before anything else,
and whatever has patience fires; or it hears before that what waited (`Hear`).

ByzantineConsumer: a Consumer that reports what nobody stored: more than a stream has, and the end of one that goes
on.

Silent consumer: a Consumer that takes part in everything, and never answers a grant.

Reader: a Consumer whose streams end.

It reports the end of a stream of the first generation whenever it has read all `offsets` of it.  Those that are there
at the beginning have ended; of one that the script begins before it rotates it may be a lie, and is refused (S16).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Event, Fsm, Process, Send, Status, fresh, in_order, incarnation
from statemachines.shared_subscriptions.agent_process import AGENT, BORROWERS
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    CONNECTED,
    CONNECTING,
    LeaseEnd,
    OnDisconnect,
    OnUnsubscribe,
    PingTimeout,
)
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import END_OF_STREAM, Grant
from statemachines.shared_subscriptions.private_subscription import (
    AgentRecord,
    EndSubscription,
    GroupReady,
    SharedFilter,
    SubscribeShared,
)
from statemachines.shared_subscriptions.stream import ABSENT, GRANTED, REVOKING, StreamProgress
from statemachines.shared_subscriptions.stream_store import rank_of
from statemachines_spec.explorer.actor import (
    Crash,
    Envelope,
    Hear,
    PassAll,
    Passed,
    PassLease,
    Pause,
    Reaction,
    Timing,
    Wake,
    Watch,
)
from statemachines_spec.explorer.environment import Environment
from statemachines_spec.explorer.party import InternedParty, LateFiring
from statemachines_spec.explorer.process_actor import ProcessComponent
from statemachines_spec.explorer.process_steps import PartsTurn, ProcessParts, ProcessSteps, use_machine
from statemachines_spec.shared_subscriptions.variants import NAMED_SPEAKERS, leave_out_witness

GROUP, FILTER = "g", "#"


class Promised(Event, frozen=True, gc=False):
    """The leader has sent its answer to ping `n`: not something the borrower knows, but what deadline orders need."""

    borrower: str
    epoch: int
    registration: int
    n: int


class ConsumerMode(Status):
    """How the process is: going on, standing still (its lease passed, or every deadline), hearing what waited, ended,
    crashed."""

    RUNNING = "running"
    PAUSED = "paused"
    LATE = "paused past its lease"
    LATER = "paused past every deadline"
    HEARING = "past its ping timeout, hearing what waited"
    ENDED = "ended"
    CRASHED = "crashed"


RUNNING, PAUSED, LATE, LATER, HEARING, ENDED, CRASHED = ConsumerMode
STANDING = (PAUSED, LATE, LATER)
GOING_ON = (RUNNING, HEARING)


class ConsumerLocal(msgspec.Struct, frozen=True, gc=False):
    """`number` of the borrower of the moment; `parts`: the process (None: it has crashed); `promised`: the answer to
    the outstanding ping is on its way, or was lost."""

    mode: ConsumerMode
    number: int
    parts: ProcessParts | None
    promised: bool = False

    @property
    def party(self) -> InternedParty | None:
        """The borrower of the moment."""
        return None if self.parts is None else self.parts.of_kind(BORROWERS.name)


class Consumer(ProcessComponent):
    """`pings`: how many each borrower sends (0: any number, and a borrower beyond `lives` is cut); `offsets`: the
    messages of each stream; `faults` may happen; `late`: timers that were taken back may still fire; `registries`: the
    hosts that it asks in turn."""

    environments: tuple[Environment, ...] = (NAMED_SPEAKERS,)

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        *,
        fsm: Fsm[Any] = BORROWER,
        registry: str = "leader-1",
        registries: tuple[str, ...] = (),
        lives: int = 1,
        pings: int = 2,
        offsets: int = 1,
        faults: tuple[type[Event], ...] = (),
        silent: tuple[str, ...] = (),
        late: bool = False,
    ) -> None:
        super().__init__(name, self.choose_process(fsm), silent=silent, late=late)
        self.host = incarnation(name, 1)
        self.lives = lives
        self.faults = faults
        self.configuration = configuration.check()
        self.registries = registries or (registry,)
        self.registry = self.registries[0]
        self.pings = pings
        self.offsets = offsets

    def choose_process(self, fsm: Fsm[Any]) -> Process[Any]:
        """The process that it runs, with this machine for its borrowers."""
        return leave_out_witness(use_machine(AGENT, BORROWERS.name, fsm))

    @property
    def fsm(self) -> Fsm[Any]:
        """The machine of its borrowers."""
        return self.process.fsm_of(BORROWERS.name)

    def make_record(self, life: str) -> AgentRecord:
        """What the process begins with."""
        return AgentRecord(life, self.registries, self.configuration)

    def set_timing(self, timing: Timing, fsm: Fsm[Any] | None = None) -> None:
        """Its borrowers are timed from now on."""
        self.set_timings({BORROWERS.name: timing})

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> ConsumerLocal:
        """Just started, the first leader_wanted lost: the timer asks again."""
        return ConsumerLocal(RUNNING, 1, subscribe(self.steps, self.make_record(self.host)))

    def inputs(self, local: ConsumerLocal) -> tuple[Any, ...]:
        if local.party is None:
            return ()
        if local.mode in STANDING:
            return tuple(self._passing(local))
        faults = tuple(self._faults(local.party.record))
        if local.mode is HEARING:
            return (Wake(), *self._progress(local.party.record), *faults)
        if self._first_due(local) is not None:
            return (*self._fired(local), *(fault for fault in faults if not isinstance(fault, OnUnsubscribe)))
        return (*self._fired(local), *self._progress(local.party.record), *faults)

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Promised():
                return Reaction(replace(local, promised=self._is_promised(local, event)))
            case Pause() | PassLease() | PassAll():
                return Reaction(replace(local, mode=_MODES[type(event)]))
            case Crash():
                return Reaction(self._end(local, CRASHED, None))
            case Passed():
                return self._pass_time(local, event.ticks, standing=local.mode in STANDING)
        if local.mode is CRASHED:
            return Reaction(local)
        if isinstance(event, Wake | Hear):
            return self._wake(local, isinstance(event, Hear), watch)
        if local.mode in STANDING or self._waits(local, event):
            return None
        assert local.parts is not None
        turn = PartsTurn(self.steps, local.parts, watch)
        self._take(turn, local, envelope)
        return self._over(local, self._done(turn, local, event), watch)

    def within(self, local: ConsumerLocal) -> bool:
        if not self.pings:
            return local.number <= self.lives
        return local.party is None or local.party.record.ping_n <= self.pings

    def describe(self, local: ConsumerLocal) -> str:
        if local.party is None:
            return str(local.mode.value)
        record = local.party.record
        words = [f"{record.id} {record.status.value}"]
        if record.link is not None:
            words.append(f"(epoch {record.link.epoch}, registration {record.link.registration})")
        if record.leased:
            words.append("leased")
        words += [
            f"{child.status.value} {stream} by grant {child.grant} at {child.progress}"
            for stream, child in in_order(record.streams)
            if child.status is not ABSENT
        ]
        if local.mode is not RUNNING:
            words.append(str(local.mode.value))
        return ", ".join(words)

    # -- reactions ----------------------------------------------------------------------------------------------

    def _take(self, turn: PartsTurn, local: ConsumerLocal, envelope: Envelope) -> None:
        """What the process takes, or the borrower of the moment."""
        borrower = "" if local.party is None else local.party.record.id
        match envelope.event:
            case OnUnsubscribe():
                turn.feed(turn.id, EndSubscription(turn.record.parties[borrower]))
            case LateFiring() as late:
                turn.fire_late(borrower, late)
            case event if envelope.sender:
                turn.receive(envelope.sender, envelope.to, event)
            case event:
                turn.feed(borrower, event)

    def _feed(self, local: ConsumerLocal, events: list[Event], watch: Watch | None) -> Reaction:
        """Events of the borrower of the moment; one that ends in between takes no more of them."""
        assert local.parts is not None
        turn = PartsTurn(self.steps, local.parts, watch)
        for event in events:
            self._take(turn, local, Envelope("", self.name, event))
        turn.go_on()
        return self._done(turn, local)

    def _done(self, turn: PartsTurn, before: ConsumerLocal, event: Any = None) -> Reaction:
        """What there is now, and what is said; of a borrower beyond the bounds nothing is."""
        sends = tuple(Envelope(party, one.to, one.message) for party, one in turn.out if isinstance(one, Send))
        parts = turn.parts()
        if self.pings:
            beyond = fresh(self.host, self.lives + 1)
            sends = tuple(one for one in sends if one.sender != beyond)
            parts = limit_lives(self.steps, parts, self.lives)
        return Reaction(self._settled(self._after(before, parts)), sends)

    def _after(self, before: ConsumerLocal, parts: ProcessParts) -> ConsumerLocal:
        """What there is now: without a borrower the subscription has ended, and nothing else of it matters."""
        number = parts.own.record.number
        if parts.of_kind(BORROWERS.name) is None:
            return self._end(replace(before, number=number), ENDED, ProcessParts(parts.own))
        return replace(before, number=number, parts=parts)

    def _end(self, local: ConsumerLocal, mode: ConsumerMode, parts: ProcessParts | None) -> ConsumerLocal:
        """It has ended, or crashed."""
        return replace(local, mode=mode, parts=parts, promised=False)

    def _wake(self, local: ConsumerLocal, hears: bool, watch: Watch | None) -> Reaction:
        """The end of the lease comes first, then what has patience, or what waited."""
        due: list[Event] = []
        if local.mode in (LATE, LATER) and is_armed(local.party, "lease"):
            due.append(LeaseEnd())
        if not hears:
            due += self._overdue(local)
        return self._feed(replace(local, mode=HEARING if hears else RUNNING), due, watch)

    def _overdue(self, local: ConsumerLocal) -> Iterator[Event]:
        """What has patience and fires when the process goes on."""
        if local.mode in (LATER, HEARING) and is_armed(local.party, "ping_timeout"):
            yield PingTimeout()

    def _over(self, before: ConsumerLocal, reaction: Reaction, watch: Watch | None) -> Reaction:
        """The lease that an answer brings which waited longer than that is over: its end comes before the next
        event."""
        local = reaction.local
        if before.mode is not HEARING or not is_armed(local.party, "lease"):
            return reaction
        then = self._feed(local, [LeaseEnd()], watch)
        return replace(then, sends=(*reaction.sends, *then.sends), calls=(*reaction.calls, *then.calls))

    def _settled(self, local: ConsumerLocal) -> ConsumerLocal:
        if local.mode is HEARING and not is_armed(local.party, "ping_timeout"):
            local = replace(local, mode=RUNNING)
        if local.promised and (local.party is None or not local.party.record.outstanding):
            return replace(local, promised=False)
        return local

    def _is_promised(self, local: ConsumerLocal, event: Promised) -> bool:
        if local.party is None:
            return False
        record = local.party.record
        link = record.link
        return local.promised or (
            link is not None
            and record.outstanding
            and (record.id, link.epoch, link.registration, record.ping_n)
            == (event.borrower, event.epoch, event.registration, event.n)
        )

    # -- what may happen ----------------------------------------------------------------------------------------

    def _progress(self, record: Any) -> Iterator[Event]:
        for stream, child in in_order(record.streams):
            if child.status is GRANTED and child.progress < self.offsets:
                yield StreamProgress(stream, child.grant, child.progress + 1)
            elif child.status is REVOKING and not child.finished:
                yield StreamProgress(stream, child.grant, child.progress, True)

    def _faults(self, record: Any) -> Iterator[Event]:
        for fault in self.faults:
            if fault in (OnUnsubscribe, OnDisconnect) and record.status not in (CONNECTING, CONNECTED):
                continue
            yield fault()

    def _passing(self, local: ConsumerLocal) -> Iterator[Event]:
        yield Wake()
        if local.mode is LATER and is_armed(local.party, "ping_timeout"):
            yield Hear()
        if self.timing is not None:
            return  # time passes by itself
        if local.mode is PAUSED and local.party is not None and local.party.record.leased:
            yield PassLease()
        if local.mode is not LATER:
            yield PassAll()


def limit_lives(steps: ProcessSteps, parts: ProcessParts, lives: int) -> ProcessParts:
    """The process, whose subscription ends in place of a borrower beyond `lives`."""
    if parts.own.record.number <= lives:
        return parts
    return ProcessParts(steps.changed(parts.own, "ended", lambda record: end_subscription(record, lives)))


def end_subscription(record: AgentRecord, lives: int) -> AgentRecord:
    """The record once the borrower beyond `lives` has ended, which never was."""
    (party,) = record.parties
    return replace(record.end(party), number=lives, turn=lives + 1, recreated=lives - 1)


def subscribe(
    steps: ProcessSteps, record: AgentRecord, topic_filter: str = FILTER, at_delivery: bool = False
) -> ProcessParts:
    """Subscribed to a group that is declared, the first leader_wanted lost: the timer asks again."""
    turn = PartsTurn(steps, steps.begin(record), None)
    turn.feed(record.id, SubscribeShared(SharedFilter(GROUP, topic_filter, at_delivery)))
    declarer = next(party for party, effect in turn.out if isinstance(effect, Ask))
    turn.feed(record.id, GroupReady(declarer))
    turn.remove(declarer)
    return turn.parts()


def is_armed(party: InternedParty | None, timer: str) -> bool:
    """Whether this timer of the node is set."""
    return party is not None and any(name == timer for name, _ in party.timers)


_MODES = {Pause: PAUSED, PassLease: LATE, PassAll: LATER}


BEYOND = 3
"""More messages than any stream of its systems has."""


class ByzantineConsumer(Consumer):
    """Acknowledges as others do, and lies about every stream it is granted whenever it likes."""

    def _progress(self, record: Any) -> Iterator[Event]:
        yield from super()._progress(record)
        for stream, child in in_order(record.streams):
            if child.status is GRANTED and child.progress <= self.offsets:
                yield StreamProgress(stream, child.grant, BEYOND)
                yield StreamProgress(stream, child.grant, END_OF_STREAM)


class SilentConsumer(Consumer):
    """Registers, pings, and begins anew as others do."""

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if local.mode in GOING_ON and isinstance(envelope.event, Grant):
            return Reaction(local)
        return super().react(local, envelope, watch)


class ReadingConsumer(Consumer):
    """Acknowledges one by one up to `offsets`, and then the end."""

    def _progress(self, record: Any) -> Iterator[Event]:
        yield from super()._progress(record)
        for stream, child in in_order(record.streams):
            has_ended = rank_of(stream)[1] == 0
            if child.status is GRANTED and has_ended and child.progress == self.offsets:
                yield StreamProgress(stream, child.grant, END_OF_STREAM)
