"""Section: what a scenario file says of persistent sessions: who takes part, what they do, and how long they wait."""

from __future__ import annotations

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.collector import Graces
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.times import Times
from statemachines_sim.scenario import Range, Scenario, check_bounds, check_ranges, check_times


class SessionSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys below `[persistent_sessions]`."""

    nodes: int = 3
    subscribers: int = 4
    publishers: int = 2
    join_nodes_s: tuple[float, ...] = ()
    topics: int = 4
    filters: int = 2
    """So many filters each subscriber has; they may overlap, and the last of several is a wildcard."""
    qos: tuple[int, ...] = (1,)
    """Of subscriptions and messages, drawn from these."""
    publish_ms: Range = (50, 400)
    """How long a publisher waits between two messages."""
    moves_ms: Range = (0, 0)
    """How long a publisher stays at a node before it goes to the next (0: until that fails)."""
    expires: float = 0.0
    """Such a share of the messages expires ..."""
    message_expiry_ms: Range = (100, 3_000)
    """... so long after it was stored."""
    ack_ms: Range = (1, 60)
    """How long a subscriber has a message before it acknowledges it."""
    receive_maximum: tuple[int, ...] = (1, 3, 1_000)
    """Each subscriber has one of these, in turn."""
    stay_s: Range = (3, 15)
    """How long a subscriber stays connected (0: for ever) ..."""
    away_ms: Range = (50, 5_000)
    """... and how long it stays away then ..."""
    leave: float = 0.4
    """... such a share of the times with a word, else as if the wire had been cut ..."""
    discard: float = 0.1
    """... and such a share of those with an expiry of 0."""
    clean: float = 0.1
    """Such a share of the connects begins clean."""
    resubscribe: float = 0.3
    """At such a share of the times at which it would leave, a subscriber ends or begins a subscription instead."""
    expiry_ms: int = 60_000
    """A session outlives its connection by so much (-1: for ever)."""
    raw: bool = False
    """What one node sends another is lost or comes twice, and nobody hears of it (else: the connection breaks)."""
    lag_ms: Range = (0, 120)
    """How far a replica is behind, at most (0: never)."""
    replicas: int = 2
    lease_ms: int = 3_000
    """A node that has said nothing to the database for so long is dead for the others."""
    look_ms: int = 500
    """How often a node looks there for what it was not told."""
    silent_ms: int = 3_000
    """A subscriber or publisher takes a node for dead that has said nothing for so long."""
    marker_ms: int = 1_500
    resume_ms: int = 5_000
    lock_ms: int = 6_000
    takeover_ms: int = 1_500
    """How long an owner that is taken over may take to begin to yield, and to end."""
    buffer: int = 10_000
    """So many live messages of a writer are kept while the database is read."""
    queue: int = 1_000
    """So many messages wait for a client beside those in flight; others wait in the database."""
    handover: int = 1_000
    """So many rows an owner that yields hands over."""
    dead_ms: int = 3_000
    """A session of which nobody has said for so long that it lives has no owner any more."""
    collect: bool = True
    """Nodes delete what nobody needs any more."""
    marker_grace_ms: int = 6_000
    message_grace_ms: int = 2_000
    abandon_grace_ms: int = 10_000
    retention_ms: int = 600_000
    round_ms: int = 700

    @property
    def times(self) -> Times:
        """How long owners and writers wait; `ConfigurationError` where that cannot be."""
        return Times(
            lock_ms=self.lock_ms,
            resume_ms=self.resume_ms,
            marker_ms=self.marker_ms,
            begin_ms=self.takeover_ms,
            end_ms=self.takeover_ms,
            orphan_ms=self.lock_ms,
            resume_buffer=self.buffer,
            queue=self.queue,
            handover=self.handover,
        )

    @property
    def life_times(self) -> LifeTimes:
        """The same of connections."""
        return LifeTimes(lock_ms=self.lock_ms, dead_ms=self.dead_ms)

    @property
    def graces(self) -> Graces | None:
        """The same of collectors; None: there are none."""
        if not self.collect:
            return None
        return Graces(
            marker_ms=self.marker_grace_ms,
            message_ms=self.message_grace_ms,
            abandon_ms=self.abandon_grace_ms,
            retention_ms=self.retention_ms,
            dead_ms=self.dead_ms,
            round_ms=self.round_ms,
            times=self.times,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The topics."""
        return tuple(f"home/{number + 1}" for number in range(self.topics))

    def filters_of(self, number: int) -> tuple[str, ...]:
        """What the subscriber of this number (from 1 on) subscribes."""
        plain = [self.names[(number - 1 + place) % self.topics] for place in range(self.filters)]
        if self.filters > 1:
            plain[-1] = ("home/+", "home/#")[number % 2]
        return tuple(dict.fromkeys(plain))


def check(own: SessionSection, scenario: Scenario) -> None:
    """Raises `ConfigurationError` where a value breaks a rule."""
    check_bounds(
        ("nodes", own.nodes, 0, 100),
        ("subscribers", own.subscribers, 0, 5_000),
        ("publishers", own.publishers, 0, 1_000),
        ("topics", own.topics, 1, 1_000),
        ("filters", own.filters, 1, own.topics),
        ("leave", own.leave, 0, 1),
        ("discard", own.discard, 0, 1),
        ("clean", own.clean, 0, 1),
        ("expires", own.expires, 0, 1),
        ("resubscribe", own.resubscribe, 0, 1),
        ("expiry_ms", own.expiry_ms, -1, 2**53),
        ("replicas", own.replicas, 1, 10),
        ("lease_ms", own.lease_ms, 1, 3_600_000),
        ("look_ms", own.look_ms, 1, 3_600_000),
        ("silent_ms", own.silent_ms, 1_000, 3_600_000),
    )
    check_ranges(
        *(
            (key, getattr(own, key))
            for key in ("publish_ms", "moves_ms", "message_expiry_ms", "ack_ms", "stay_s", "away_ms", "lag_ms")
        )
    )
    if own.publish_ms[0] < 1:
        raise ConfigurationError("publish_ms", list(own.publish_ms), "must be at least 1: time has to pass")
    if own.message_expiry_ms[0] < 1:
        raise ConfigurationError("message_expiry_ms", list(own.message_expiry_ms), "must be at least 1")
    if own.moves_ms[1] and not own.moves_ms[0]:
        raise ConfigurationError("moves_ms", list(own.moves_ms), "must be [0, 0], or begin above 0")
    if own.stay_s[1] and not own.stay_s[0]:
        raise ConfigurationError("stay_s", list(own.stay_s), "must be [0, 0], or begin above 0")
    _check_choices("qos", own.qos, 0, 2)
    _check_choices("receive_maximum", own.receive_maximum, 1, 65_535)
    check_times(scenario, ("join_nodes_s", own.join_nodes_s))
    if not scenario.network.fifo:
        raise ConfigurationError("network.fifo", False, "must be true: nodes and clients talk over connections")
    _ = own.times, own.life_times, own.graces


def _check_choices(key: str, values: tuple[int, ...], low: int, high: int) -> None:
    if not values or any(not low <= value <= high for value in values):
        raise ConfigurationError(key, list(values), f"must be one or more numbers from {low} to {high}")
