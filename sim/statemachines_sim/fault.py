"""Fault: one entry of a fault schedule, as data; and how a seed draws a schedule.

A schedule alone decides what goes wrong: a run is its scenario, its seed and its schedule, and a failing one is shrunk
by leaving out entries.  Each kind is drawn from a random stream of its own: a kind more or less leaves all others as
they are.

    kind            hits             what happens                                                amount (unit)
    crash           a consumer       dies with its memory; the disk (the number of its lives) stays
    lost_disk       a consumer       dies with its disk: a node of a new name comes in its place
    leader_crash    a leader host    dies with its memory, and comes back
    pause           a process        stands still, from a blink to longer than most timeouts
    long_pause      a process        stands still for longer than every timeout of the protocol
    slow_consumer   a consumer       its application works slower                                times (factor)
    skew            a clock          is ahead by a constant, from the beginning on               ns
    drift           a clock          runs fast or slow, within `clock_drift`                     parts per million
    jump            a clock          leaps ahead, by no more than the protocol tolerates         ns
    far_jump        a clock          leaps ahead, by more than the protocol tolerates            ns
    loss            the network      a share `rate` of the messages never arrives
    duplicate       the network      a share arrives twice, the copy up to 3 s late
    reorder         the network      a share is overtaken: up to 400 ms late
    hold_back       the network      a share is held back, up to 10 s, most of them for less than 1 s
    partition       one direction    what `target` sends to `peer` never arrives
    store           both stores      a share of the requests fails, half of them after they took effect
    slow_store      a store          a share of the requests waits before it is carried out      ns, at most
    store_crash     a store          dies; it comes back with what was committed, and never answers what was open
    torn_write      the group store  dies in the midst of the next batch, and undoes what has no end mark
    power_loss      the group store  dies with the commits of its last moments: no disk under them    ns
    late_timer      a process        a share `rate` of the timers that it takes back fires all the same, once
    halt            a leader host    its leaders are told to stop in good order; who is asked next starts another
    unsubscribe     a consumer       its client unsubscribes, and subscribes again when the fault ends

A clock is a process's or a store's.  Every fault lasts `for_ns`, a jump and a halt no time at all, a skew the whole
run.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.configuration import MS
from statemachines_sim.local_clock import PPM
from statemachines_sim.scenario import Range, Scenario
from statemachines_sim.swarm import settle

S = 1_000_000_000
"""Nanoseconds in a second."""

DEATHS: Final = ("crash", "lost_disk", "leader_crash")
PAUSES: Final = ("pause", "long_pause")
CLOCK_KINDS: Final = ("skew", "drift", "jump", "far_jump")
NETWORK_KINDS: Final = ("loss", "duplicate", "reorder", "hold_back")
STORE_DEATHS: Final = ("store_crash", "power_loss")

KINDS: Final = (
    "crash", "leader_crash", "pause", "partition", "loss", "duplicate", "hold_back", "store", "reorder", "lost_disk",
    "long_pause", "slow_consumer", "skew", "drift", "jump", "far_jump", "slow_store", "store_crash", "torn_write",
    "power_loss", "late_timer", "halt", "unsubscribe",
)  # fmt: skip

UNITS: Final = {
    "slow_consumer": "times", "skew": "ns", "drift": "ppm", "jump": "ns", "far_jump": "ns", "slow_store": "ns",
    "power_loss": "ns",
}  # fmt: skip
"""What `amount` counts, of the kinds that have one."""

STORES: Final = (group_store.SERVICE, stream_store.SERVICE)


class Fault(msgspec.Struct, frozen=True):
    """`kind` hits `target` (a node or a store, "" = the network or both stores) from `at_ns` for `for_ns`; a partition
    cuts what `target` sends to `peer`; `rate`: the share of messages or requests that are hit; `amount`: how much, in
    the unit of the kind."""

    kind: str
    at_ns: int
    for_ns: int
    target: str = ""
    peer: str = ""
    rate: float = 0.0
    amount: int = 0


def draw(scenario: Scenario, seed: int) -> tuple[Fault, ...]:
    """The fault schedule of a seed, by time."""
    scenario = settle(scenario, seed)
    faults: list[Fault] = []
    for kind in KINDS:
        bounds: Range = getattr(scenario.faults, kind)
        pot = _Pot(scenario, random.Random(f"{seed}/faults/{kind}"))
        count = pot.chance.randint(*bounds)
        faults.extend(pot.draw(kind, count) for _ in range(count))
    return tuple(sorted(faults, key=lambda fault: (fault.at_ns, fault.kind, fault.target, fault.peer)))


class _Pot:
    """What faults of one kind are drawn from."""

    def __init__(self, scenario: Scenario, chance: random.Random) -> None:
        self.chance = chance
        self._scenario = scenario
        self._end = int(scenario.phases.safety_s * S)
        self._consumers = [f"consumer-{number + 1}" for number in range(scenario.members.consumers)]
        self._leaders = [f"leader-{number + 1}" for number in range(scenario.members.leaders)]
        self._nodes = self._leaders + self._consumers

    def draw(self, kind: str, count: int) -> Fault:
        """One of `count` faults of this kind."""
        chance = self.chance
        at = chance.randrange(S, self._end)
        lasts = _duration(chance)
        match kind:
            case "crash" | "lost_disk" | "unsubscribe":
                return Fault(kind, at, lasts, chance.choice(self._consumers))
            case "leader_crash":
                return Fault(kind, at, lasts, chance.choice(self._leaders))
            case "halt":
                return Fault(kind, at, 0, chance.choice(self._leaders))
            case "pause":
                return Fault(kind, at, lasts, chance.choice(self._nodes))
            case "late_timer":
                return Fault(kind, at, lasts, chance.choice(self._nodes), rate=chance.choice(self._scenario.rates))
            case "long_pause":
                return self._draw_long_pause(at)
            case "slow_consumer":
                return Fault(kind, at, lasts, chance.choice(self._consumers), amount=chance.choice((3, 10, 30)))
            case "partition":
                ends = [chance.choice(self._consumers), chance.choice(self._leaders)]
                chance.shuffle(ends)
                return Fault(kind, at, lasts, ends[0], ends[1])
            case "slow_store":
                amount = chance.choice((100, 500, 2_000, 20_000)) * MS
                return Fault(
                    kind, at, lasts, chance.choice(STORES), rate=chance.choice(self._scenario.rates), amount=amount
                )
            case "store_crash":
                return Fault(kind, at, lasts, chance.choice(STORES))
            case "torn_write":
                return Fault(kind, at, lasts, group_store.SERVICE)
            case "power_loss":
                back = chance.choice((100, 1_000, 3_000)) * MS
                # Not so far that the group is not declared any more: that is as if nobody had subscribed.
                return Fault(kind, at, lasts, group_store.SERVICE, amount=min(back, max(at - S, 0)))
            case "skew" | "drift" | "jump" | "far_jump":
                return self._draw_clock(kind, at, lasts, count)
            case _:
                return Fault(kind, at, lasts, rate=chance.choice(self._scenario.rates))

    def _draw_long_pause(self, at: int) -> Fault:
        """Longer than every timeout but the idle stop, and over before everything heals."""
        configuration = self._scenario.configuration
        times = [name for name in configuration.__struct_fields__ if name.endswith("_ms") and name != "idle_stop_ms"]
        longest = max(getattr(configuration, name) for name in times) * MS
        lasts = int(longest * (1.05 + 0.5 * self.chance.random()))
        return Fault("long_pause", min(at, max(S, self._end - lasts)), lasts, self.chance.choice(self._nodes))

    def _draw_clock(self, kind: str, at: int, lasts: int, count: int) -> Fault:
        chance = self.chance
        jumps = self._scenario.faults.jump[1] > 0
        if kind == "far_jump":
            return Fault(kind, at, 0, chance.choice((*self._leaders, STORES[0])), amount=chance.randrange(S, 60 * S))
        target = chance.choice((*self._nodes, STORES[0]))
        if kind == "skew":
            return Fault(kind, 0, self._end, target, amount=chance.randrange(3_600 * S))
        if kind == "jump":
            return Fault(kind, at, 0, target, amount=chance.randrange(1, self._jump_max(target, count)))
        most = round(self._scenario.configuration.clock_drift * PPM) // (1 + jumps)
        return Fault(kind, at, lasts, target, amount=chance.choice((-most, -most // 2, most // 2, most)))

    def _jump_max(self, target: str, count: int) -> int:
        """Of a consumer any jump is tolerated: its lease only ends sooner.  A leader's and a store's is an error of the
        rate over a lease, or a claim: all jumps together stay within half of `clock_drift`, drift within the rest."""
        if target in self._consumers:
            return 60 * S
        configuration = self._scenario.configuration
        span_ms = configuration.lease_ms if target in self._leaders else configuration.claim_ttl_ms
        return max(int(span_ms * MS * configuration.clock_drift / 2) // max(count, 1), 2)


def _duration(chance: random.Random) -> int:
    """From a blink to longer than any timeout, each order of magnitude as likely."""
    return int(S * 0.05 * 10 ** (chance.random() * 2.5))
