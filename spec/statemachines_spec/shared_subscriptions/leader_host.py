"""LeaderHost: the shipped registry, which finds, starts and forgets leaders, and what a leader asks of the stores.

What is relayed to it is answered directly.  What a leader asks of the stores is answered within the same transition
(`at_once`), or travels as a message that is neither lost nor doubled.  Numbers of requests begin anew whenever no
answer is outstanding; queues are numbered from their head: neither can be told apart by anything the leader does later.

Lossy host: a leader host that loses so many messages, on their way in or out, and no more (L5).

In a lossy network something may be lost for ever, and nothing is promised of what is acknowledged at last.  Here loss
is a fault like others: a budget says how often, and which message it meets is anybody's choice.
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
    in_order,
    incarnation,
    is_fresh,
    life_of,
    node_of,
)
from statemachines.shared_subscriptions.claim import ClaimEnd, Halt
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.leader_record import CANDIDATE, HOLDING, LOOKING, LeaderRecord
from statemachines.shared_subscriptions.message import LeaderWanted, PingResponse, RelayedToLeader
from statemachines.shared_subscriptions.registry import LEADERS, REGISTRY, RegistryRecord
from statemachines_spec.explorer.actor import Crash, Envelope, Passed, PassLease, Pause, Reaction, Timing, Wake, Watch
from statemachines_spec.explorer.naming import rebase_queue
from statemachines_spec.explorer.party import InternedParty, LateFiring
from statemachines_spec.explorer.process_actor import ProcessComponent
from statemachines_spec.explorer.process_steps import PartsTurn, ProcessParts, use_machine
from statemachines_spec.explorer.system import System
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


class LeaderHostMode(Status):
    """How the process is."""

    RUNNING = "running"
    PAUSED = "paused"
    LATE = "paused past the end of its claim"


RUNNING, PAUSED, LATE = LeaderHostMode


class LeaderHostLocal(msgspec.Struct, frozen=True, gc=False):
    """`life` of the process; `awaited`: answers of stores that are to come; `parts`: the process; `passed`: the epoch
    of a claim that has ended before the leader knows that it has it."""

    mode: LeaderHostMode
    life: int
    awaited: int
    parts: ProcessParts
    passed: int = 0

    @property
    def party(self) -> InternedParty | None:
        """The leader, while there is one."""
        return self.parts.of_kind(LEADERS.name)

    @property
    def number(self) -> int:
        """How many leaders it has started in this life."""
        return int(self.parts.own.record.number)


class LeaderHost(ProcessComponent):
    """`leaders`: how many it starts in one life; `lives`, `registrations`, `grants`, `epochs` bound what only grows;
    `late`: timers that were taken back may still fire; `ages`: a claim that it watches may grow old; `by_name`: of a
    leader that is gone it speaks under its own name, for those who look at who speaks; `alone`: it counts on no other
    host where the stream store fails."""

    local_type: type[LeaderHostLocal] = LeaderHostLocal

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
        alone: bool = True,
    ) -> None:
        process = use_machine(REGISTRY, LEADERS.name, fsm)
        super().__init__(name, process, silent=silent, late=late)
        self.lives = lives
        self.faults = faults
        self.configuration = configuration.check()
        self.ages = ages
        self.alone = alone
        self.by_name = by_name
        self.at_once = at_once
        self.leaders = leaders
        self.registrations = registrations
        self.grants = grants
        self.epochs = epochs

    @property
    def fsm(self) -> Fsm[Any]:
        """The machine of its leaders."""
        return self.process.fsm_of(LEADERS.name)

    def make_record(self, life: str) -> RegistryRecord:
        """What the process begins with."""
        return RegistryRecord(life, self.configuration, alone=self.alone)

    def set_timing(self, timing: Timing, fsm: Fsm[Any] | None = None) -> None:
        """Its leaders are timed from now on."""
        self.set_timings({LEADERS.name: timing})

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> LeaderHostLocal:
        return self.local_type(RUNNING, 1, 0, self.steps.begin(self.make_record(incarnation(self.name, 1))))

    def inputs(self, local: LeaderHostLocal) -> tuple[Any, ...]:
        if local.mode is not RUNNING:
            holds = not self._times("claim_end") and local.party is not None and local.party.record.status in HOLDING
            return (Wake(), PassLease()) if local.mode is PAUSED and holds else (Wake(),)
        if local.party is None:
            return tuple(self._fired(local))
        due = self._first_due(local) is not None
        faults = tuple(fault() for fault in self.faults if not (due and fault is Halt))
        ages = (Age(),) if self.ages and not self._times("claim_end") and self._is_young(local) else ()
        return (*self._fired(local), *faults, *ages)

    def react(self, local: LeaderHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Crash():
                parts = self.steps.begin(self.make_record(incarnation(self.name, local.life + 1)))
                return Reaction(self.local_type(RUNNING, local.life + 1, 0, parts))
            case Pause():
                return Reaction(replace(local, mode=PAUSED))
            case PassLease():
                return Reaction(replace(local, mode=LATE))
            case ClaimPassed():
                return Reaction(self._settled(replace(local, passed=event.epoch), event.leader))
            case Age():
                return self._age(local)
            case Passed():
                return self._pass_time(local, event.ticks, standing=local.mode is not RUNNING)
            case Wake():
                ends = local.mode is LATE and self._is_armed(local, "claim_end") and "claim_end" in self.fsm.authority
                local = replace(local, mode=RUNNING)
                return self._feed(local, Envelope("", self.name, ClaimEnd()) if ends else None, watch)
        if local.mode is not RUNNING or self._waits(local, event):
            return None
        if isinstance(event, RelayedToLeader) and event.leader == envelope.to:
            # Answered directly: whether a message finds its way is the network's choice here (SS-274, SS-275).
            envelope = replace(envelope, event=event.message)
        if isinstance(event, Answer):
            if local.party is None or envelope.to != local.party.record.id:
                return Reaction(local)
            local = replace(local, awaited=local.awaited - 1)
        return self._feed(local, envelope, watch)

    def within(self, local: LeaderHostLocal) -> bool:
        if local.life > self.lives or local.number > self.leaders:
            return False
        if local.party is None:
            return True
        record = local.party.record
        counted = (record.registration, record.grant, record.epoch)
        most = (self.registrations, self.grants, self.epochs)
        return all(one <= bound for one, bound in zip(counted, most, strict=True))

    def canonical(self, local: LeaderHostLocal) -> LeaderHostLocal:
        """Queues are numbered from 0 and, where no answer can come any more, so are requests."""
        if local.party is None:
            return local
        awaited = local.awaited
        named = self.steps.changed(local.party, f"{bool(awaited)}", lambda record: renumber_leader(record, awaited))
        return replace(local, parts=local.parts.put(named))

    def describe(self, local: LeaderHostLocal) -> str:
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

    def _is_young(self, local: LeaderHostLocal) -> bool:
        """It watches a claim, which is not old yet."""
        found = read_watched(local)
        return found is not None and local.party is not None and local.party.record.found_at_ns > self._aged_ns

    def _age(self, local: LeaderHostLocal) -> Reaction:
        """The holder may not even know yet that it has the claim; by its clock it is over."""
        found = read_watched(local)
        assert found is not None
        assert local.party is not None
        aged = self.steps.changed(local.party, "aged", lambda record: replace(record, found_at_ns=self._aged_ns))
        node = node_of(found.value.leader)
        passed = Envelope("", node, ClaimPassed(found.value.leader, found.value.epoch))
        return Reaction(replace(local, parts=local.parts.put(aged)), (), () if node == self.name else (passed,))

    def _feed(self, local: LeaderHostLocal, envelope: Envelope | None, watch: Watch | None) -> Reaction:
        """What the registry takes, or its leader."""
        turn = PartsTurn(self.steps, local.parts, watch)
        if envelope is None:
            turn.go_on()
        else:
            self._take(turn, local, envelope)
        return self._finish(local, turn, envelope)

    @staticmethod
    def _take(turn: PartsTurn, local: LeaderHostLocal, envelope: Envelope) -> None:
        leader = "" if local.party is None else local.party.record.id
        match envelope.event:
            case LateFiring() as late:
                turn.fire_late(leader, late)
            case LeaderWanted() as event:
                turn.receive(event.borrower, envelope.to, event)
            case Answer() as event:
                turn.feed(envelope.to, event)
            case event if envelope.sender:
                turn.receive(envelope.sender, envelope.to, event)
            case event if type(event) in turn.process.fsm.alphabet:
                turn.feed(turn.id, event)
            case event:
                turn.feed(leader, event)

    def _finish(self, before: LeaderHostLocal, turn: PartsTurn, envelope: Envelope | None) -> Reaction:
        local = replace(before, parts=turn.parts())
        if local.party is not None and local.party.record.status in self.fsm.final:
            raise InvariantViolated(self.fsm.name, "it stops where it is at its end", local.party.record, envelope)
        sends: list[Envelope] = []
        calls: list[Envelope] = []
        was_ripe = before.party is not None and before.party.record.ripe
        if local.party is not None and local.party.record.ripe and not was_ripe:
            calls.append(Envelope("", GROUP_STORE, Watched(local.party.record.found.stamp)))
        if local.party is not None and local.passed and self._is_armed(local, "claim_end"):
            # Armed for a moment that is over: it fires before anything else.
            turn.feed(local.party.record.id, ClaimEnd())
            local = replace(local, parts=turn.parts(), passed=0)
        leader = local.party
        for name, effect in turn.out:
            speaker = envelope.to if name == turn.id and envelope is not None and not self.by_name else name
            self._perform(speaker, effect, sends, calls)
        asks = sum(isinstance(effect, Ask) for _, effect in turn.out)
        if leader is None:
            return Reaction(replace(local, awaited=0, passed=0), tuple(sends), tuple(calls))
        local = replace(local, awaited=local.awaited + asks)
        return Reaction(self._settled(local, leader.record.id), tuple(sends), tuple(calls))

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
    def _settled(local: LeaderHostLocal, leader: str) -> LeaderHostLocal:
        """`passed` matters while the leader waits to hear whether it has that claim."""
        record = None if local.party is None else local.party.record
        trial = None if record is None or record.id != leader or record.status is not CANDIDATE else record.trial
        if local.passed and (trial is None or trial.claim.epoch != local.passed):
            return replace(local, passed=0)
        return local

    def _times(self, timer: str) -> bool:
        """Whether time is counted for this timer of its leaders."""
        timing = self.steps.timings.get(LEADERS.name)
        return timing is not None and timer in timing.timers

    @staticmethod
    def _is_armed(local: LeaderHostLocal, timer: str) -> bool:
        return local.party is not None and any(name == timer for name, _ in local.party.timers)


def read_watched(local: LeaderHostLocal) -> Any:
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
    return replace(record, number=0, repeat_n=0, load_n=0, list_n=0, measure_n=0, trial=trial)


class Lose(Event, frozen=True, gc=False):
    """The next message to this host is lost, or (`out`) all that it sends next."""

    out: bool


class LosingLocal(LeaderHostLocal, frozen=True, gc=False):
    """`loses`: what is about to be lost."""

    loses: Lose | None = None


class LosingHost(LeaderHost):
    """As it is; what it loses comes on top."""

    local_type = LosingLocal

    def inputs(self, local: LeaderHostLocal) -> tuple[Any, ...]:
        assert isinstance(local, LosingLocal)
        return (*super().inputs(local), *((Lose(False), Lose(True)) if local.loses is None else ()))

    def react(self, local: LeaderHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, LosingLocal)
        if isinstance(envelope.event, Lose):
            return Reaction(replace(local, loses=envelope.event))
        if local.loses == Lose(False) and is_fresh(envelope.sender):
            return Reaction(replace(local, loses=None))
        reaction = super().react(local, envelope, watch)
        if reaction is None or local.loses != Lose(True) or not reaction.sends:
            return reaction
        return Reaction(replace(reaction.local, loses=None), (), reaction.calls)


def losing(system: System) -> System:
    """The same system, whose leader hosts lose messages."""
    actors = tuple(_losing(actor) if isinstance(actor, LeaderHost) else actor for actor in system.actors)
    return replace(system, actors=actors)


def _losing(host: LeaderHost) -> LosingHost:
    return LosingHost(
        host.name,
        host.configuration,
        fsm=host.fsm,
        at_once=host.at_once,
        registrations=host.registrations,
        grants=host.grants,
        silent=tuple(sorted(host.silent)),
    )
