"""Succession: how long nobody holds the claim after one has ended (L6 with its bound), in systems with a tick.

A member that has lost its leader hears of it within L by its own clock, and asks one leader host after the other from
then on, one each `find_leader`, whether they live or not.  Others may ask a host at any time, or never.  Counted are
ticks of the common clock, from the moment when the leader that held the claim is gone or its claim has ended by its
own clock, whichever is first, until somebody holds it again.

Timings: the times of shared subscriptions in systems with a tick: few ticks long, with every relation kept.

A tick is 4 ms and clocks err by a quarter, so that what is reckoned comes out in whole ticks: a lease lasts 3 ticks,
and has surely ended after 5 of another clock; a claim of 5 ticks ends after 3 of its owner's.

Election: leader hosts race for the claim of one group, stand still, crash, and lose it to each other.

Of borrowers there is no more than that somebody asks each host for a leader whenever it has none: what a leader does
for them stands in the other systems.  So the hosts do the same things, and are interchangeable; the group store keeps
their names, and is renamed with them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Message
from statemachines.shared_subscriptions.borrower import BorrowerRecord
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.leader_record import CLAIMED, LOOKING, LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.shared_subscriptions.stream_store import StreamStore
from statemachines_spec.explorer.actor import (
    Actor,
    Crash,
    Envelope,
    Move,
    Observer,
    Passed,
    Pause,
    Reaction,
    Stamp,
    Timing,
    Watch,
)
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.party import is_due
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.explorer.symmetry import Symmetry
from statemachines_spec.explorer.system import Budget, System
from statemachines_spec.shared_subscriptions import leader_host, properties
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.leader_host import RUNNING, STORE_TIMERS, LeaderHost, LeaderHostLocal
from statemachines_spec.shared_subscriptions.orders import CLAIM_END_BEFORE_AGE
from statemachines_spec.shared_subscriptions.stores import Store, make_declared_store, streams
from statemachines_spec.shared_subscriptions.variants import configuration

NAME = "election"
ABOUT = "three hosts race for the claim, which they lose by standing still and by crashing"
WANTED = LeaderWanted("somebody~1/1", GROUP, FILTER)


class Election(msgspec.Struct, frozen=True):
    """How many of what: `hosts`, the `network` between them and the stores (which loses and doubles no request),
    `epochs` of the claim and `renewals` (all together), `host_lives` of a host and `leaders` it starts in each; faults:
    how often all together."""

    hosts: int = 3
    network: Network = Network(3, lossy=False, duplicating=False)
    epochs: int = 2
    renewals: int = 0
    host_lives: int = 1
    leaders: int = 1
    crashes: int = 0
    pauses: int = 0


SIZES: dict[str, dict[str, Any]] = {
    "small": {"network": Network(2, lossy=False, duplicating=False), "crashes": 1},
    "ci": {"crashes": 1, "host_lives": 2},
    "large": {"crashes": 1, "host_lives": 2, "pauses": 1, "renewals": 1},
}
"""Size -> what differs from the default."""


class CandidateHost(LeaderHost):
    """A leader host that somebody asks for a leader as long as it has none.  A crash ends its last life for good."""

    def inputs(self, local: LeaderHostLocal) -> tuple[Any, ...]:
        if local.party is None and local.mode is leader_host.RUNNING:
            return (WANTED,) if local.life <= self.lives else ()
        return super().inputs(local)

    def within(self, local: LeaderHostLocal) -> bool:
        return local.life == self.lives + 1 or super().within(local)


def build(setting: Election, variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The closed system; `without` these deadline orders."""
    hosts = tuple(_host(number, setting, variant) for number in range(setting.hosts))
    names = tuple(one.name for one in hosts)
    stores = (
        Store(GroupStore(), at_once=False, state=make_declared_store(configuration(variant)), roots=setting.renewals),
        Store(StreamStore(1), at_once=False, state=streams(("a",), 1)),
    )
    return System(
        NAME,
        ABOUT,
        (*hosts, *stores),
        setting.network,
        (
            properties.one_leader(names),
            *properties.sometimes_elected(names),
            *(one for one in properties.STEPWISE if one.name != "S4"),
        ),
        (
            Budget("crash of a leader host", setting.crashes, lambda actor, event: isinstance(event, Crash)),
            Budget("pause of a leader host", setting.pauses, lambda actor, event: isinstance(event, Pause)),
        ),
        tuple(order for order in (CLAIM_END_BEFORE_AGE,) if order.name not in without),
        _bounds(setting, variant),
        symmetries=(Symmetry(names),),
    )


def system(size: str, variant: str, without: tuple[str, ...]) -> System:
    """The system in one of its sizes."""
    return build(replace(Election(), **SIZES[size]), variant, without)


def _host(number: int, setting: Election, variant: str) -> CandidateHost:
    faults = (*((Crash,) if setting.crashes else ()), *((Pause,) if setting.pauses else ()))
    fires = {"claim_end", *(("heartbeat",) if setting.renewals else ())}
    return CandidateHost(
        f"leader-{number + 1}",
        configuration(variant),
        at_once=False,
        lives=setting.host_lives,
        leaders=setting.leaders,
        epochs=setting.epochs,
        faults=faults,
        silent=tuple(timer for timer in STORE_TIMERS if timer not in fires),
        ages=True,
    )


def _bounds(setting: Election, variant: str) -> dict[str, str]:
    return {
        "variant": variant,
        "borrowers": "none; somebody asks each host for a leader while it has none",
        "leaders": f"{setting.epochs} epochs; {setting.leaders} in each of {setting.host_lives} lives of a host",
        "stores": "requests and answers travel",
        "commits": f"{setting.renewals} renewals of the claim",
    }


TICK_NS = 4 * MS

TIMES = Configuration(
    find_leader_ms=4,
    ping_interval_ms=4,
    ping_timeout_ms=8,
    validity_ms=24,
    max_delay_ms=1,
    clock_drift=0.25,
    unsubscribe_timeout_ms=8,
    resend_interval_ms=4,
    renew_streams_ms=4,
    revoke_timeout_ms=12,
    claim_ttl_ms=20,
    claim_heartbeat_ms=8,
    commit_interval_ms=4,
    idle_stop_ms=12,
    count_deliveries=False,
)


def of_borrower(ours: Configuration, timers: tuple[str, ...], slack: int = 0) -> Timing:
    """Of a consumer with these timed timers.  The sending time of a ping is read when it is answered.  `slack`: ticks
    by which mistaken machines may reckon further than they should."""

    def ping_at(record: BorrowerRecord, live: Move, dead: Move) -> Any:
        move = live if record.outstanding and "lease" in timers else dead
        return replace(record, ping_at_ns=move(record.ping_at_ns))

    return Timing(TICK_NS, timers, (Stamp("ping_at_ns", ours.lease_ms * MS + slack * TICK_NS, ping_at),))


def of_leader(ours: Configuration, timers: tuple[str, ...], slack: int = 0) -> Timing:
    """Of a leader host with these timed timers.  When the last ping was answered is read when a member lapses, when a
    commit was sent once it is known to have happened, when a claim was found by who looks at it.  `slack`: as of a
    borrower."""

    def answered_at(record: LeaderRecord, live: Move, dead: Move) -> Any:
        members = record.members
        for borrower, one in members.items():
            read = one.answered and one.status is REGISTERED and "hand_over" in timers
            moved = (live if read else dead)(one.answered_at_ns)
            if moved != one.answered_at_ns:
                members = members.set(borrower, replace(one, answered_at_ns=moved))
        return replace(record, members=members)

    def sent_at(record: LeaderRecord, live: Move, dead: Move) -> Any:
        trial = record.trial
        if trial is None:
            return record
        read = not trial.release and ("claim_end" in timers or "heartbeat" in timers)
        return replace(record, trial=replace(trial, sent_at_ns=(live if read else dead)(trial.sent_at_ns)))

    def found_at(record: LeaderRecord, live: Move, dead: Move) -> Any:
        read = record.found is not None and record.status in LOOKING
        return replace(record, found_at_ns=(live if read else dead)(record.found_at_ns))

    claim_ns = max(ours.claim_by_own_clock_ns(), ours.claim_heartbeat_ms * MS)
    stamps = (
        Stamp("answered_at_ns", ours.lease_by_other_clock_ns() + slack * TICK_NS, answered_at),
        Stamp("sent_at_ns", claim_ns + slack * TICK_NS, sent_at),
        Stamp("found_at_ns", ours.claim_ttl_ms * MS, found_at),
    )
    return Timing(TICK_NS, timers, stamps)


ASKER, VACANCY = "somebody", "vacancy"


class Vacated(Event, frozen=True, gc=False):
    """Nobody holds the claim any more."""


class Held(Event, frozen=True, gc=False):
    """Somebody holds the claim."""


class Ask(Event, frozen=True, gc=False):
    """The member asks the host whose turn it is."""


class AskingOrder(msgspec.Struct, frozen=True, gc=False):
    """`turn`: which host is asked next; `left`: ticks until then, by its own clock (-1: it follows somebody);
    `unaware`: it still takes the leader that is gone for one that lives, for so long at most."""

    turn: int = 0
    left: int = -1
    unaware: bool = False


class Empty(msgspec.Struct, frozen=True, gc=False):
    """For so many ticks nobody has held the claim (-1: somebody does, or nobody ever has); `again`: somebody held it
    after nobody had."""

    ticks: int = -1
    again: bool = False


class AskedHost(CandidateHost):
    """A leader host whose messages are lost while it stands still, and once it has crashed for good; whoever asks one
    that serves already is content with that, and registers with nobody."""

    def react(self, local: LeaderHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        is_gone = local.life > self.lives
        is_message = isinstance(envelope.event, Message)
        is_lost = is_gone and not isinstance(envelope.event, Passed)
        if is_lost or (is_message and local.mode is not RUNNING):
            return Reaction(local)
        if isinstance(envelope.event, LeaderWanted) and holds(local):
            return Reaction(local)
        return super().react(local, envelope, watch)


class Asker(Observer):
    """A member, or rather its Agent, as far as it looks for a leader: for `lease` ticks at most it does not know that
    it has to; it asks again after `pause` ticks."""

    def __init__(self, hosts: tuple[str, ...], lease: int, pause: int) -> None:
        super().__init__(ASKER)
        self.hosts = hosts
        self.lease = lease
        self.pause = pause
        self.set_timing(Timing(TICK_NS))

    def initial(self) -> AskingOrder:
        return AskingOrder()

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        return find_claim_change(self.hosts, actor, before, after)

    def inputs(self, local: AskingOrder) -> tuple[Any, ...]:
        return (Ask(),) if local.left == 0 or local.unaware else ()

    def react(self, local: AskingOrder, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Vacated():
                return Reaction(replace(local, left=self.lease, unaware=True))
            case Held():
                return Reaction(replace(local, left=-1, unaware=False))
            case Passed(ticks):
                if ticks and local.left == 0:
                    return None
                return Reaction(replace(local, left=max(local.left - ticks, 0)) if local.left > 0 else local)
        asked = Envelope(WANTED.borrower, self.hosts[local.turn], WANTED)
        return Reaction(AskingOrder((local.turn + 1) % len(self.hosts), self.pause), (asked,))

    def describe(self, local: AskingOrder) -> str:
        if local.left < 0:
            return "follows a leader"
        return f"asks {self.hosts[local.turn]} " + ("within" if local.unaware else "in") + f" {local.left} ticks"

    def bounds(self) -> dict[str, str]:
        return {"asks": f"{self.lease} ticks at most after its leader is gone, then a host every {self.pause} ticks"}


class Vacancy(Observer):
    """Counts the ticks in which nobody holds the claim, up to one more than `most`."""

    keeps_time = True

    def __init__(self, hosts: tuple[str, ...], most: int) -> None:
        super().__init__(VACANCY)
        self.hosts = hosts
        self.most = most

    def initial(self) -> Empty:
        return Empty()

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        return find_claim_change(self.hosts, actor, before, after)

    def react(self, local: Empty, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Vacated():
                return Reaction(replace(local, ticks=0))
            case Held():
                return Reaction(Empty(again=local.again or local.ticks > 0))
        return Reaction(local if local.ticks < 0 else replace(local, ticks=min(local.ticks + 1, self.most + 1)))

    def describe(self, local: Empty) -> str:
        return "nothing" if local.ticks < 0 else f"nobody has held the claim for {local.ticks} ticks"


def find_claim_change(hosts: Iterable[str], actor: str, before: Any, after: Any) -> Event | None:
    """Whether a host has taken the claim, or has it no longer."""
    if actor not in hosts or holds(before) == holds(after):
        return None
    return Held() if holds(after) else Vacated()


def holds(local: LeaderHostLocal) -> bool:
    """The host has a leader whose claim has not ended by its own clock."""
    party = local.party
    return party is not None and party.record.status in CLAIMED and not is_due(party, "claim_end")


def count_bound_ticks(ours: Configuration, hosts: int) -> int:
    """Within so many ticks somebody holds the claim (L6)."""
    d = Fraction(round(ours.clock_drift * 1_000_000), 1_000_000)
    sum_ms = ours.claim_ttl_ms + ours.lease_ms + 2 * ours.commit_interval_ms + hosts * ours.find_leader_ms
    return -int(-Fraction(sum_ms * MS, TICK_NS) * (1 + d) / (1 - d) // 1)


def ask_in_turn(made: System, ours: Configuration, most: int = 0) -> System:
    """The election, its hosts asked in turn; `most`: ticks in place of the bound of L6."""
    hosts = tuple(actor.name for actor in made.actors if isinstance(actor, CandidateHost))
    most = most or count_bound_ticks(ours, len(hosts))
    lease, pause = (-(-time_ms * MS // TICK_NS) for time_ms in (ours.lease_ms, ours.find_leader_ms))
    actors = tuple(_ask_host(actor) for actor in made.actors)
    kept = tuple(one for one in made.properties if one.name != "a later leader")
    return replace(
        made,
        actors=(*actors, Asker(hosts, lease, pause), Vacancy(hosts, most)),
        properties=(*kept, *succeeds(most)),
        bounds={**made.bounds, "nobody holds the claim": f"for {most} ticks at most"},
    )


def succeeds(most: int) -> tuple[Property, ...]:
    """L6 with its bound, and against a model in which nobody ever comes after."""
    text = f"after the end of a claim somebody holds it within {most} ticks"
    late = View(VACANCY, 2, lambda local: int(local.ticks > most))
    return (
        Always("L6 in time", text, (late,), lambda is_late: not is_late),
        Sometimes(
            "L6 again", "somebody holds the claim after nobody had for a tick", (View(VACANCY, 2, _again),), bool
        ),
    )


def _again(local: Empty) -> int:
    return int(local.again and local.ticks < 0)


def _ask_host(actor: Actor) -> Actor:
    if not isinstance(actor, CandidateHost):
        return actor
    host = copy.copy(actor)
    host.__class__ = AskedHost
    return host
