"""Consumer: a process with one subscription: the shipped Borrower, and as little of an Agent and a session as it needs.

The Agent makes the next borrower when one ends itself, up to `lives` of them, and answers leaders that talk to one that
is gone.  The session is what the borrower's own record says of its streams: while one is granted, messages may be
acknowledged one by one up to `offsets`; once it is to be finished, the final progress may come at any time.

A process may stand still (`Pause`) while time passes.  When it goes on (`Wake`), its lease ends before anything else,
and whatever has patience fires; or it hears before that what waited (`Hear`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Effect, Event, Fsm, Send, Status, Stop, Tell, fresh, in_order, incarnation
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    CONNECTED,
    CONNECTING,
    BorrowerRecord,
    Destroyed,
    LeaseEnd,
    OnDisconnect,
    OnUnsubscribe,
    PingTimeout,
    Start,
)
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import Disconnect, Undeclared
from statemachines.shared_subscriptions.stream import ABSENT, GRANTED, REVOKING, StreamProgress
from statemachines_spec.explorer.actor import (
    Actor,
    Crash,
    Envelope,
    Hear,
    PassAll,
    Passed,
    PassLease,
    Pause,
    Reaction,
    Wake,
    Watch,
)
from statemachines_spec.explorer.party import (
    LateFiring,
    Party,
    advance,
    begin,
    fire_late,
    fire_next,
    firings,
    first_due,
    pass_time,
    waits,
)
from statemachines_spec.explorer.timing import Timing

GROUP, FILTER = "g", "#"


class Promised(Event, frozen=True, gc=False):
    """The leader has sent its answer to ping `n`: not something the borrower knows, but what deadline orders need."""

    borrower: str
    epoch: int
    registration: int
    n: int


class Mode(Status):
    """How the process is: going on, standing still (its lease passed, or every deadline), hearing what waited, ended,
    crashed."""

    RUNNING = "running"
    PAUSED = "paused"
    LATE = "paused past its lease"
    LATER = "paused past every deadline"
    HEARING = "past its ping timeout, hearing what waited"
    ENDED = "ended"
    CRASHED = "crashed"


RUNNING, PAUSED, LATE, LATER, HEARING, ENDED, CRASHED = Mode
STANDING = (PAUSED, LATE, LATER)
GOING_ON = (RUNNING, HEARING)


class ConsumerLocal(msgspec.Struct, frozen=True, gc=False):
    """`number` of the borrower of the moment; `epoch`: the highest the Agent has seen; `promised`: the answer to the
    outstanding ping is on its way, or was lost."""

    mode: Mode
    number: int
    epoch: int
    party: Any
    promised: bool = False


class Consumer(Actor):
    """`pings`: how many each borrower sends; `offsets`: the messages of each stream; `faults` may happen;
    `late`: timers that were taken back may still fire; `timing`: of a system with a tick."""

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
        late: bool = False,
        timing: Timing | None = None,
    ) -> None:
        super().__init__(name, silent=silent, timing=timing, fsm=fsm, late=late)
        self.configuration = configuration.check()
        self.fsm = fsm
        self.registry = registry
        self.lives = lives
        self.pings = pings
        self.offsets = offsets
        self.faults = faults
        self.late = late

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> ConsumerLocal:
        """Just started, the first leader_wanted lost: the timer asks again."""
        return ConsumerLocal(RUNNING, 1, 0, self._borrower(1, 0))

    def inputs(self, local: ConsumerLocal) -> tuple[Any, ...]:
        if local.party is None:
            return ()
        if local.mode in STANDING:
            return tuple(self._passing(local))
        faults = tuple(self._faults(local.party.record))
        if local.mode is HEARING:
            return (Wake(), *self._progress(local.party.record), *faults)
        fired = tuple(firings(self.fsm, local.party, self.silent, self.timing))
        if self.timing is not None and first_due(self.timing, local.party) is not None:
            return (*fired, *(fault for fault in faults if not isinstance(fault, OnUnsubscribe)))
        return (*fired, *self._progress(local.party.record), *faults)

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Promised():
                return Reaction(replace(local, promised=self._is_promised(local, event)))
            case Pause() | PassLease() | PassAll():
                return Reaction(replace(local, mode=_MODES[type(event)]))
            case Crash():
                return Reaction(ConsumerLocal(CRASHED, local.number, 0, None))
            case Passed():
                return pass_time(self.timing, local, event.ticks, standing=local.mode in STANDING)
        if local.mode is CRASHED:
            return Reaction(local)
        if isinstance(event, Wake | Hear):
            return self._wake(local, isinstance(event, Hear), watch)
        if local.mode in STANDING:
            return None
        if envelope.sender and (local.party is None or event.borrower != local.party.record.id):
            return self._farewell(local, envelope)
        if local.party is not None and waits(self.timing, self.fsm, local.party, event):
            return None
        if isinstance(event, LateFiring) and local.party is not None:
            party, event = fire_late(self.fsm, local.party, event)
            local = replace(local, party=party)
        return self._over(local, self._step(local, [event], watch), watch)

    def within(self, local: ConsumerLocal) -> bool:
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

    def _step(self, local: ConsumerLocal, events: list[Event], watch: Watch | None) -> Reaction:
        """Events of the borrower of the moment; one that ends in between takes no more of them."""
        sends: list[Envelope] = []
        party: Party | None = local.party
        for event in (events := list(events)):  # what is due meanwhile is added
            if party is None:
                break
            name = party.record.id
            party, effects = advance(self.fsm, party, event, name, watch, self.timing)
            local = replace(local, party=party)
            for effect in effects:
                local = self._perform(local, name, effect, sends, watch)
            if event is events[-1]:
                events += fire_next(self.timing, self.fsm, local.party)
            party = local.party if local.party is None or local.party.record.id == name else None
        return Reaction(self._settled(local), tuple(sends))

    def _perform(
        self, local: ConsumerLocal, name: str, effect: Effect, sends: list[Envelope], watch: Watch | None
    ) -> ConsumerLocal:
        match effect:
            case Send(to, message):
                sends.append(Envelope(name, to, message))
            case Tell(Destroyed() as event):
                return self._next(local, event, sends, watch)
            case Tell() | Stop():
                pass  # the session is what the record says of its streams
            case _:
                raise TypeError(f"a borrower asks nobody: {effect!r}")
        return local

    def _next(
        self, local: ConsumerLocal, event: Destroyed, sends: list[Envelope], watch: Watch | None
    ) -> ConsumerLocal:
        """The Agent: the next borrower knows the highest epoch; without one the subscription has ended."""
        epoch = max(local.epoch, event.epoch)
        number = local.number + 1
        if not event.recreate or number > self.lives:
            return ConsumerLocal(ENDED, local.number, 0, None)
        name = fresh(incarnation(self.name, 1), number)
        party, effects = advance(self.fsm, self._borrower(number, epoch), Start(), name, watch, self.timing)
        sends += [Envelope(name, effect.to, effect.message) for effect in effects if isinstance(effect, Send)]
        return ConsumerLocal(local.mode, number, epoch, party)

    def _farewell(self, local: ConsumerLocal, envelope: Envelope) -> Reaction:
        """The Agent: a borrower that is gone has left."""
        message = envelope.event
        if isinstance(message, Undeclared):
            return Reaction(local)
        gone = Disconnect(message.borrower, message.epoch, message.registration)
        return Reaction(local, (Envelope(message.borrower, envelope.sender, gone),))

    def _wake(self, local: ConsumerLocal, hears: bool, watch: Watch | None) -> Reaction:
        """The end of the lease comes first, then what has patience, or what waited."""
        if self.timing is not None:
            return self._step(replace(local, mode=RUNNING), fire_next(self.timing, self.fsm, local.party), watch)
        due: list[Event] = []
        if local.mode in (LATE, LATER) and is_armed(local.party, "lease"):
            due.append(LeaseEnd())
        if not hears:
            due += self._overdue(local)
        return self._step(replace(local, mode=HEARING if hears else RUNNING), due, watch)

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
        then = self._step(local, [LeaseEnd()], watch)
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

    def _borrower(self, number: int, epoch: int) -> Party:
        name = fresh(incarnation(self.name, 1), number)
        record = BorrowerRecord(name, GROUP, FILTER, (self.registry,), self.configuration, epoch=epoch)
        return begin(self.fsm, record, self.late, timing=self.timing)

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


def is_armed(party: Party | None, timer: str) -> bool:
    """Whether this timer of the node is set."""
    return party is not None and any(name == timer for name, _ in party.timers)


_MODES = {Pause: PAUSED, PassLease: LATE, PassAll: LATER}
