"""Section: what a scenario file says of shared subscriptions: the subscription, the load, the members, the times."""

from __future__ import annotations

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group import check_dead_letters, start_of
from statemachines.shared_subscriptions.group_store import Order
from statemachines.shared_subscriptions.stream_store import matches, parse_filter
from statemachines_sim.scenario import Range, Scenario, check_bounds, check_ranges, check_times


class GroupLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is published, and how consumers deal with it."""

    topics: int = 8
    messages: int = 2_500
    batch: int = 25
    """Messages of one publish, all of one topic."""
    take: int = 4
    """Messages a consumer takes at a time."""
    work_ms: Range = (10, 120)
    """How long it takes to deal with them."""
    start: str = "beginning"
    """Where the group begins that the first subscribe declares: "now" or "beginning"."""
    rotate_s: tuple[float, ...] = ()
    """When the stream store begins a new generation."""
    drop_s: tuple[float, ...] = ()
    """When it drops all generations but the current one, read or not."""
    poison: tuple[int, ...] = ()
    """Offsets of the first topic: who deals with such a message dies of it, and starts again two seconds later."""
    given_back: float = 0.0
    """The share of what a consumer takes that it gives back, for half a second or at once."""
    stray: int = 0
    """Messages on topics of two levels (`stray/t000`), which the subscription must not match: nobody is to get them."""


class Members(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who takes part: all from the start, each consumer beside one of the `leaders` (hosts), which it asks first;
    `join_s` more consumers later; `leave_s`: one unsubscribes;
    `resubscribe_s`: one unsubscribes and subscribes again, ten times in quick succession."""

    consumers: int = 3
    leaders: int = 1
    join_s: tuple[float, ...] = ()
    leave_s: tuple[float, ...] = ()
    resubscribe_s: tuple[float, ...] = ()


class GroupSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys below `[shared_subscriptions]`."""

    subscription: str = "$shared/workers/#"
    order: Order = "strict"
    """Of the messages of the group that the first subscribe declares."""
    load: GroupLoad = GroupLoad()
    members: Members = Members()
    configuration: Configuration = Configuration(count_deliveries=False)
    """Failed deliveries are counted where a scenario says so."""

    @property
    def group_and_filter(self) -> tuple[str, str]:
        """What the subscription names."""
        return parse_filter(self.subscription)


def check(own: GroupSection, scenario: Scenario) -> None:
    """Raises `ConfigurationError` where a value breaks a rule."""
    load, members = own.load, own.members
    parse_filter(own.subscription)
    own.configuration.check()
    check_bounds(
        ("load.topics", load.topics, 1, 100_000),
        ("load.messages", load.messages, 0, 10_000_000),
        ("load.stray", load.stray, 0, 10_000_000),
        ("load.batch", load.batch, 1, 10_000),
        ("load.take", load.take, 1, 10_000),
        ("members.consumers", members.consumers, 0, 1_000),
        ("members.leaders", members.leaders, 1, 9),
    )
    check_ranges(("load.work_ms", load.work_ms))
    if not 0 <= load.given_back <= 0.9:
        raise ConfigurationError("load.given_back", load.given_back, "must be a share from 0 to 0.9")
    if not all(0 <= offset < 10_000_000 for offset in load.poison):
        raise ConfigurationError("load.poison", load.poison, "must be offsets of the first topic, none below 0")
    times = own.configuration
    if (load.poison or load.given_back) and (times.max_deliver, times.spent) == (None, "park"):
        rule = 'must be set, with spent = "drop" or a dead_letter_topic, where messages fail: else nothing ends'
        raise ConfigurationError("configuration.max_deliver", None, rule)
    start_of(load.start)
    check_times(
        scenario,
        ("load.rotate_s", load.rotate_s),
        ("load.drop_s", load.drop_s),
        ("members.join_s", members.join_s),
        ("members.leave_s", members.leave_s),
        ("members.resubscribe_s", members.resubscribe_s),
    )
    _, topic_filter = own.group_and_filter
    check_dead_letters(times, topic_filter)
    if load.stray and matches(topic_filter, "stray/t000"):
        raise ConfigurationError("subscription", own.subscription, "must not match stray/t000 where load.stray > 0")


def count_affordable(own: GroupSection, scenario: Scenario) -> int:
    """How many messages the consumers can deal with in half of the time of a run: more would break L5 without any
    fault of the protocol."""
    load = own.load
    half_ms = 500 * (scenario.phases.safety_s + scenario.phases.liveness_s)
    return int(half_ms * 2 / max(sum(load.work_ms), 1) * min(load.take, load.batch) * own.members.consumers)


def is_quick(own: GroupSection, scenario: Scenario) -> bool:
    """Whether applications and network are so quick that, without a fault, every revoke is finished in time."""
    most_ms = own.load.work_ms[1] + scenario.network.delay_ms[1] + scenario.network.tail_ms
    return 4 * most_ms < own.configuration.revoke_timeout_ms


def scenario(name: str, **keys: object) -> Scenario:
    """A scenario of shared subscriptions by its keys, those of the section among the others."""
    own = {key: keys.pop(key) for key in GroupSection.__struct_fields__ if key in keys}
    return Scenario(name, "shared_subscriptions", GroupSection(**own), **keys)  # type: ignore[arg-type]
