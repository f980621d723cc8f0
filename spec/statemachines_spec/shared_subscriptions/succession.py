"""Succession: how long nobody holds the claim after one has ended (L6 with its bound), in systems with a tick.

A member that has lost its leader hears of it within L by its own clock, and asks one leader host after the other from
then on, one each `find_leader`, whether they live or not.  Others may ask a host at any time, or never.  Counted are
ticks of the common clock, from the moment when the leader that held the claim is gone or its claim has ended by its
own clock, whichever is first, until somebody holds it again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Message
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.leader_record import CLAIMED
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines_spec.explorer.actor import Actor, Envelope, Observer, Passed, Reaction, Watch
from statemachines_spec.explorer.party import is_due
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.timing import Timing
from statemachines_spec.shared_subscriptions.election import WANTED, CandidateHost
from statemachines_spec.shared_subscriptions.leader_host import RUNNING, LeaderHostLocal
from statemachines_spec.shared_subscriptions.timings import TICK_NS

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
