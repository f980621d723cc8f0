"""LeaderHost: a process with a registry and, while it leads, the shipped Leader.

The registry starts a leader on the first `leader_wanted`, hands messages on, and tells whoever talks to a leader that
is gone.  What a leader asks of the stores is answered within the same transition (`at_once`), or travels as a message
that is neither lost nor doubled.  Numbers of requests begin anew whenever no answer is outstanding; queues are
numbered from their head: neither can be told apart by anything the leader does later.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    Answer,
    Ask,
    Effect,
    Event,
    Fsm,
    InvariantViolated,
    Send,
    Status,
    Stop,
    fresh,
    in_order,
    incarnation,
    is_fresh,
    life_of,
    node_of,
)
from statemachines.shared_subscriptions.claim import ClaimEnd, Halt, StartLeader
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.leader_record import CANDIDATE, HOLDING, LOOKING, LeaderRecord
from statemachines.shared_subscriptions.message import (
    Invalidate,
    LeaderWanted,
    Ping,
    PingResponse,
    RelayedToLeader,
    UpdateProgress,
)
from statemachines_spec.explorer.actor import Actor, Crash, Envelope, Passed, PassLease, Pause, Reaction, Wake, Watch
from statemachines_spec.explorer.naming import rebase_queue
from statemachines_spec.explorer.party import (
    LateFiring,
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
from statemachines_spec.shared_subscriptions.consumer import Promised

STORE_TIMERS = ("heartbeat", "commit", "renew", "idle", "claim_end", "recheck", "measure")
"""Timers that a system without store faults or another leader may leave silent."""

QUIET_TIMERS = (*STORE_TIMERS, "grant_timeout")
"""And without anybody who leaves a grant unanswered."""


class Age(Event, frozen=True, gc=False):
    """Time passes: a host has watched the claim of another for its TTL, by its own clock."""


class Watched(Event, frozen=True, gc=False):
    """To the group store, for those who judge it: the read that is coming was sent when the claim of this stamp had
    been watched for its TTL."""

    stamp: int


class ClaimPassed(Event, frozen=True, gc=False):
    """Time has passed beyond the end of a claim: not something the leader knows, but what its clock would say."""

    leader: str
    epoch: int


class Mode(Status):
    """How the process is."""

    RUNNING = "running"
    PAUSED = "paused"
    LATE = "paused past the end of its claim"


RUNNING, PAUSED, LATE = Mode


class HostLocal(msgspec.Struct, frozen=True, gc=False):
    """`life` of the process; `number` of leaders it has started; `awaited`: answers of stores that are to come;
    `passed`: the epoch of a claim that has ended before the leader knows that it has it."""

    mode: Mode
    life: int
    number: int
    awaited: int
    party: Any
    passed: int = 0


class LeaderHost(Actor):
    """`leaders`: how many it starts in one life; `lives`, `registrations`, `grants`, `epochs` bound what only grows;
    `late`: timers that were taken back may still fire; `ages`: a claim that it watches may grow old; `by_name`: of a
    leader that is gone it speaks under its own name, for those who look at who speaks; `timing`: of a system with a
    tick; `alone`: it counts on no other host where the stream store fails."""

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        *,
        fsm: Fsm[Any] = LEADER,
        at_once: bool = True,
        lives: int = 1,
        leaders: int = 1,
        registrations: int = 2,
        grants: int = 3,
        epochs: int = 1,
        faults: tuple[type[Event], ...] = (),
        silent: tuple[str, ...] = QUIET_TIMERS,
        late: bool = False,
        ages: bool = False,
        by_name: bool = False,
        timing: Timing | None = None,
        alone: bool = True,
    ) -> None:
        super().__init__(name, silent=silent, timing=timing, fsm=fsm, late=late)
        self.ages = ages
        self.alone = alone
        self.by_name = by_name
        self.configuration = configuration.check()
        self.fsm = fsm
        self.at_once = at_once
        self.lives = lives
        self.leaders = leaders
        self.registrations = registrations
        self.grants = grants
        self.epochs = epochs
        self.faults = faults
        self.late = late

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> HostLocal:
        return HostLocal(RUNNING, 1, 0, 0, None)

    def inputs(self, local: HostLocal) -> tuple[Any, ...]:
        if local.mode is not RUNNING:
            holds = not self._times("claim_end") and local.party is not None and local.party.record.status in HOLDING
            return (Wake(), PassLease()) if local.mode is PAUSED and holds else (Wake(),)
        if local.party is None:
            return ()
        due = self.timing is not None and first_due(self.timing, local.party) is not None
        faults = tuple(fault() for fault in self.faults if not (due and fault is Halt))
        ages = (Age(),) if self.ages and not self._times("claim_end") and self._is_young(local) else ()
        return (*firings(self.fsm, local.party, self.silent, self.timing), *faults, *ages)

    def react(self, local: HostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Crash():
                return Reaction(HostLocal(RUNNING, local.life + 1, 0, 0, None))
            case Pause():
                return Reaction(replace(local, mode=PAUSED))
            case PassLease():
                return Reaction(replace(local, mode=LATE))
            case ClaimPassed():
                return Reaction(self._settled(replace(local, passed=event.epoch), event.leader))
            case Age():
                return self._age(local)
            case Passed():
                return pass_time(self.timing, local, event.ticks, standing=local.mode is not RUNNING)
            case Wake():
                due = fire_next(self.timing, self.fsm, local.party)
                ends = local.mode is LATE and self._is_armed(local, "claim_end") and "claim_end" in self.fsm.authority
                due += [ClaimEnd()] if ends else []
                return self._step(replace(local, mode=RUNNING), due, watch)
        if local.mode is not RUNNING:
            return None
        if local.party is not None and waits(self.timing, self.fsm, local.party, event):
            return None
        if isinstance(event, RelayedToLeader) and event.leader == envelope.to:
            # Answered directly: whether a message finds its way is the network's choice here (SS-274, SS-275).
            event = event.message
            envelope = replace(envelope, event=event)
        if isinstance(event, LeaderWanted) and (not is_fresh(envelope.to) or self._is_here(local, envelope.to)):
            return self._want(local, event, watch)
        if isinstance(event, Answer):
            if local.party is None or envelope.to != local.party.record.id:
                return Reaction(local)
            return self._step(replace(local, awaited=local.awaited - 1), [event], watch)
        if envelope.sender and (local.party is None or envelope.to != local.party.record.id):
            return self._refuse(local, envelope)
        if isinstance(event, LateFiring) and local.party is not None:
            party, event = fire_late(self.fsm, local.party, event)
            local = replace(local, party=party)
        return self._step(local, [event], watch)

    def within(self, local: HostLocal) -> bool:
        if local.life > self.lives or local.number > self.leaders:
            return False
        if local.party is None:
            return True
        record = local.party.record
        counted = (record.registration, record.grant, record.epoch)
        most = (self.registrations, self.grants, self.epochs)
        return all(one <= bound for one, bound in zip(counted, most, strict=True))

    def canonical(self, local: HostLocal) -> HostLocal:
        """Queues are numbered from 0 and, where no answer can come any more, so are requests."""
        if local.party is None:
            return local
        return replace(local, party=replace(local.party, record=renumber_leader(local.party.record, local.awaited)))

    def describe(self, local: HostLocal) -> str:
        if local.party is None:
            return "no leader"
        record = local.party.record
        words = [f"{record.id} {record.status.value}"]
        words += [
            f"{borrower} {member.status.value} (registration {member.link.registration})"
            for borrower, member in in_order(record.members)
        ]
        words += [
            f"{stream} {one.status.value} to {one.link.borrower} by grant {one.grant} at {one.progress}"
            for stream, one in in_order(record.assignments)
        ]
        if local.mode is not RUNNING:
            words.append(str(local.mode.value))
        return ", ".join(words)

    # -- reactions ----------------------------------------------------------------------------------------------

    @property
    def _aged_ns(self) -> int:
        """When a claim was found that has been watched for its TTL: steps are told that it is 0."""
        return -self.configuration.claim_ttl_ms * MS

    def _is_young(self, local: HostLocal) -> bool:
        """It watches a claim, which is not old yet."""
        found = read_watched(local)
        return found is not None and local.party is not None and local.party.record.found_at_ns > self._aged_ns

    def _age(self, local: HostLocal) -> Reaction:
        """The holder may not even know yet that it has the claim; by its clock it is over."""
        found = read_watched(local)
        assert found is not None
        assert local.party is not None
        party = self._changed(local.party, replace(local.party.record, found_at_ns=self._aged_ns))
        node = node_of(found.value.leader)
        passed = Envelope("", node, ClaimPassed(found.value.leader, found.value.epoch))
        return Reaction(replace(local, party=party), (), () if node == self.name else (passed,))

    def _changed(self, party: Any, record: Any) -> Any:
        return replace(party, record=record)

    def _want(self, local: HostLocal, event: LeaderWanted, watch: Watch | None) -> Reaction:
        """The registry: to whoever leads; without one, a leader is started first."""
        if local.party is not None:
            return self._step(local, [event], watch)
        number = local.number + 1
        record = LeaderRecord(
            fresh(incarnation(self.name, local.life), number),
            event.group,
            event.filter,
            self.configuration,
            alone=self.alone,
        )
        local = replace(local, number=number, party=begin(self.fsm, record, self.late, timing=self.timing))
        return self._step(local, [StartLeader(), event], watch)

    def _refuse(self, local: HostLocal, envelope: Envelope) -> Reaction:
        """The registry: the leader that this is for is gone."""
        message = envelope.event
        if not isinstance(message, Ping | UpdateProgress):
            return Reaction(local)
        gone = Invalidate(message.borrower, message.epoch, message.registration)
        sender = incarnation(self.name, local.life) if self.by_name else envelope.to
        return Reaction(local, (Envelope(sender, message.borrower, gone),))

    def _step(self, local: HostLocal, events: list[Event], watch: Watch | None) -> Reaction:
        sends: list[Envelope] = []
        calls: list[Envelope] = []
        for event in (events := list(events)):  # what is due meanwhile is added
            party = local.party
            if party is None:
                break
            name = party.record.id
            was_ripe = party.record.ripe
            party, effects = advance(self.fsm, party, event, name, watch, self.timing)
            if party.record.ripe and not was_ripe:
                calls.append(Envelope("", GROUP_STORE, Watched(party.record.found.stamp)))
            ended = any(isinstance(effect, Stop) for effect in effects)  # what a host forgets it by
            if ended != (party.record.status in self.fsm.final):
                raise InvariantViolated(self.fsm.name, "it stops where it is at its end", party.record, event)
            asks = sum(isinstance(effect, Ask) for effect in effects)
            local = replace(local, party=None if ended else party, awaited=local.awaited + asks)
            for effect in effects:
                self._perform(name, effect, sends, calls)
            if event is events[-1]:
                events += fire_next(self.timing, self.fsm, local.party)
            if local.passed and self._is_armed(local, "claim_end"):
                events.append(ClaimEnd())  # armed for a moment that is over: it fires before anything else
                local = replace(local, passed=0)
        if local.party is None:
            return Reaction(replace(local, awaited=0, passed=0), tuple(sends), tuple(calls))
        return Reaction(self._settled(local, local.party.record.id), tuple(sends), tuple(calls))

    def _perform(self, name: str, effect: Effect, sends: list[Envelope], calls: list[Envelope]) -> None:
        match effect:
            case Send(to, message):
                sends.append(Envelope(name, to, message))
                if isinstance(message, PingResponse):
                    promised = Promised(message.borrower, message.epoch, message.registration, message.n)
                    calls.append(Envelope("", node_of(to), promised))
            case Ask(service, request):
                (calls if self.at_once else sends).append(Envelope(name, service, request))

    @staticmethod
    def _settled(local: HostLocal, leader: str) -> HostLocal:
        """`passed` matters while the leader waits to hear whether it has that claim."""
        record = None if local.party is None else local.party.record
        trial = None if record is None or record.id != leader or record.status is not CANDIDATE else record.trial
        if local.passed and (trial is None or trial.claim.epoch != local.passed):
            return replace(local, passed=0)
        return local

    def _times(self, timer: str) -> bool:
        return self.timing is not None and timer in self.timing.timers

    @staticmethod
    def _is_here(local: HostLocal, party: str) -> bool:
        return local.party is not None and bool(local.party.record.id == party)

    @staticmethod
    def _is_armed(local: HostLocal, timer: str) -> bool:
        return local.party is not None and any(name == timer for name, _ in local.party.timers)


def read_watched(local: HostLocal) -> Any:
    """The claim of somebody else (`Stored`) that a host watches, or None."""
    record = None if local.party is None else local.party.record
    if record is None or record.status not in LOOKING or record.found is None:
        return None
    held = record.found.value.leader != "" and life_of(record.found.value.leader) != life_of(record.id)
    return record.found if held else None


def renumber_leader(record: LeaderRecord, awaited: int) -> LeaderRecord:
    """The same leader with queues from 0 and, where no answer can come any more, request numbers from 0."""
    record = replace(record, free=rebase_queue(record.free), wanting=rebase_queue(record.wanting))
    if awaited:
        return record
    trial = None if record.trial is None else replace(record.trial, n=0, check_n=0)
    return replace(record, number=0, load_n=0, list_n=0, measure_n=0, trial=trial)
