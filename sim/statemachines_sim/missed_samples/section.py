"""Section: what a scenario file says of missed samples: who takes part, what is published, kept, and asked for."""

from __future__ import annotations

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.missed_samples.publisher import Beats
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.serial_number import check_width
from statemachines.missed_samples.subscriber_record import History
from statemachines_sim.scenario import Range, Scenario, check_bounds, check_ranges, check_times

UNRELIABLE = ("lost_reply", "early_end")
"""Kinds of faults that a transport which brings every reply does not have."""


class SampleSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys below `[missed_samples]`."""

    publishers: int = 4
    caches: int = 2
    """Caches of any origin, somewhere in the network; each publisher has one of its own beside it."""
    subscribers: int = 4
    join_subscribers_s: tuple[float, ...] = ()
    keys: int = 2
    """Publishers go under one of so many keys; every other subscriber is interested in all of them, the rest in one."""
    routers: int = 2
    """Who is attached to one that is dead reaches nobody."""
    publish_ms: Range = (20, 200)
    burst: Range = (1, 1)
    """So many samples are published at once."""
    unnumbered: float = 0.0
    """Besides, so large a share goes without source information."""
    continues: bool = False
    """A publisher that starts again goes on counting under its id; else it has another."""
    begin: int = 0
    """How many samples each publisher has sent before, in another life."""
    width: int = 64
    beats: Beats = Beats.OFF
    beat_ms: int = 500
    own_history: int = 1_000
    """How many samples the cache beside a publisher keeps ..."""
    cache_history: int = 1_000
    """... and those elsewhere, of each source and key, ..."""
    cache_places: int = 10_000
    """... of which they have so many queues."""
    cache_retention_ms: int = 3_600_000
    """One of them that found no place for somebody lets go after this what was silent since."""
    history: History | None = None
    """What subscribers ask for at first."""
    tokens: bool = False
    """Publishers are known to live."""
    recovery: Recovery = Recovery()
    stuck: int = 0
    """Queries about so many publishers, the first ones, never end."""
    strangers_ms: Range = (0, 0)
    """Somebody makes up the id of a source this often ([0, 0]: never)."""
    whole: bool = False
    """Nothing may be reported missed."""
    forgets: bool = False
    """In the end every source is silent, and subscribers keep nothing."""

    @property
    def key_names(self) -> tuple[str, ...]:
        """The keys."""
        return tuple(f"demo/{number}" for number in range(self.keys))

    def key_of(self, node: str) -> str:
        """Under which one a publisher goes."""
        return self.key_names[number_of(node) % self.keys]

    def expression_of(self, node: str) -> str:
        """What a subscriber is interested in."""
        number = number_of(node)
        return "demo/*" if number % 2 else self.key_names[number % self.keys]

    @property
    def tells_its_end(self) -> bool:
        """The last samples of a publisher that lives are not lost in silence."""
        return self.beats is Beats.PERIODIC or self.recovery.period_ms > 0


def number_of(node: str) -> int:
    """`publisher-3` has the number 3."""
    digits = "".join(one for one in node.partition("-")[2] if one.isdigit())
    return int(digits or 0)


def check(own: SampleSection, scenario: Scenario) -> None:
    """Raises `ConfigurationError` where a value breaks a rule."""
    check_bounds(
        ("publishers", own.publishers, 1, 200),
        ("caches", own.caches, 0, 100),
        ("subscribers", own.subscribers, 0, 200),
        ("keys", own.keys, 1, 100),
        ("routers", own.routers, 1, 100),
        ("unnumbered", own.unnumbered, 0, 1),
        ("beat_ms", own.beat_ms, 1, 3_600_000),
        ("own_history", own.own_history, 1, 10_000_000),
        ("cache_history", own.cache_history, 1, 10_000_000),
        ("cache_places", own.cache_places, 1, 10_000_000),
        ("begin", own.begin, 0, 1 << 62),
        ("cache_retention_ms", own.cache_retention_ms, 1, 86_400_000),
        ("stuck", own.stuck, 0, own.publishers),
    )
    check_ranges(*((key, getattr(own, key)) for key in ("publish_ms", "burst", "strangers_ms")))
    for key in ("publish_ms", "burst"):
        if getattr(own, key)[0] < 1:
            raise ConfigurationError(key, list(getattr(own, key)), "must be at least 1")
    if own.strangers_ms[1] and not own.strangers_ms[0]:
        raise ConfigurationError("strangers_ms", list(own.strangers_ms), "must be [0, 0], or begin above 0")
    check_width(own.width)
    check_times(scenario, ("join_subscribers_s", own.join_subscribers_s))
    if own.begin and own.recovery.past:
        raise ConfigurationError(
            "begin", own.begin, "must be 0 where recovery.past is true: no cache has what was before"
        )
    for kind in UNRELIABLE if own.recovery.reliable else ():
        if scenario.faults.get(kind, (0, 0))[1]:
            rule = "needs recovery.reliable = false: a transport that brings every reply has no such fault"
            raise ConfigurationError(f"faults.{kind}", list(scenario.faults[kind]), rule)
