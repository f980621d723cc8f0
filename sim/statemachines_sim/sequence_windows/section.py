"""Section: what a scenario file says of sequence windows: who takes part, what they publish, when they forget."""

from __future__ import annotations

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.sequence_windows.rotation import Window
from statemachines.sequence_windows.sequence import BASE_MAX
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines_sim.scenario import Range, Scenario, check_bounds, check_ranges, check_times
from statemachines_sim.units import S

LIMITS = ("limit-forgotten", "limit-last", "limit-cycled")
"""The ways in which a loss stays unseen (spec/sequence_windows/systems.md)."""
OF_ORDER = ("EXACT", "NOFALSE", "DETECT", "JOIN")
"""The properties that assume that paths keep order."""
PLENTY = 1 << 40
"""Bytes that nobody ever keeps: a window of this size never turns."""


class WindowSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys below `[sequence_windows]`."""

    publishers: int = 3
    receivers: int = 2
    applications: int = 1
    """Receivers that are the application interface (`SequencedSubscriber`) in place of bare machines."""
    subjects: int = 4
    interest: int = 0
    """How many of the subjects a receiver subscribes (0: all); what comes of the others is NOT_SUBSCRIBED."""
    publish_ms: Range = (20, 400)
    """How long a publisher waits between two messages of a subject."""
    rest: float = 0.0
    """After so large a share of them it rests instead, for `rest_s`."""
    rest_s: Range = (20, 40)
    closing: bool = True
    """When everything has healed each publisher sends once more on each subject that it has: no loss is the last."""
    pub_window_bytes: int = PLENTY
    pub_window_s: int = 10
    sub_window_bytes: int = PLENTY
    sub_window_s: int = 10
    converge_s: tuple[float, ...] = ()
    """When the operator says that the network has converged."""
    resubscribe_s: Range = (0, 0)
    """How long a receiver waits until it unsubscribes some subject (0: it never does) ..."""
    away_ms: Range = (100, 4_000)
    """... and how long until it subscribes that again."""
    join_receivers_s: tuple[float, ...] = ()
    join_publishers_s: tuple[float, ...] = ()
    places: int = 0
    """So many publishers of a subject a receiver remembers (0: more than there are)."""
    bases_left: int = 0
    """Every publisher begins with streams of which only so many bases are left (0: it begins new ones)."""
    epoch_s: int = 1_659_131_646
    """What the wall's clocks show at the beginning."""
    only: str = ""
    """The limit that is demonstrated: it hides some loss, and no other limit hides any."""

    @property
    def names(self) -> tuple[str, ...]:
        """The subjects."""
        return tuple(f"subject.{number + 1:02}" for number in range(self.subjects))

    @property
    def publisher_window(self) -> Window:
        return Window(self.pub_window_bytes, self.pub_window_s * S)

    @property
    def receiver_window(self) -> Window:
        return Window(self.sub_window_bytes, self.sub_window_s * S)

    def list_subscriptions(self, number: int) -> tuple[str, ...]:
        """What the receiver of this number (from 1 on) subscribes."""
        names = self.names
        count = self.interest or len(names)
        return tuple(names[(number - 1 + place) % len(names)] for place in range(min(count, len(names))))


def check(own: WindowSection, scenario: Scenario) -> None:
    """Raises `ConfigurationError` where a value breaks a rule."""
    check_bounds(
        ("publishers", own.publishers, 0, 1_000),
        ("receivers", own.receivers, 0, 1_000),
        ("applications", own.applications, 0, 1_000),
        ("subjects", own.subjects, 1, 99),
        ("interest", own.interest, 0, own.subjects),
        ("rest", own.rest, 0, 1),
        ("places", own.places, 0, PLACES),
        ("bases_left", own.bases_left, 0, BASE_MAX - 1),
        ("epoch_s", own.epoch_s, 1, 4_700_000_000),
    )
    ranges = ("publish_ms", "rest_s", "resubscribe_s", "away_ms")
    check_ranges(*((key, getattr(own, key)) for key in ranges))
    if own.publish_ms[0] < 1:
        raise ConfigurationError("publish_ms", list(own.publish_ms), "must be at least 1: time has to pass")
    if own.resubscribe_s[1] and not own.resubscribe_s[0]:
        raise ConfigurationError("resubscribe_s", list(own.resubscribe_s), "must be [0, 0], or begin above 0")
    times = ("converge_s", "join_receivers_s", "join_publishers_s")
    check_times(scenario, *((key, getattr(own, key)) for key in times))
    if own.only and own.only not in LIMITS:
        raise ConfigurationError("only", own.only, f"must be one of {', '.join(LIMITS)}")
    _check_window("pub_window_s", own.pub_window_s, own.pub_window_bytes)
    _check_window("sub_window_s", own.sub_window_s, own.sub_window_bytes)
    left = [name for name in OF_ORDER if name not in scenario.out_of_scope]
    if not scenario.network.fifo and left:
        rule = f"must be true, or out_of_scope have {', '.join(left)}: they assume that paths keep order"
        raise ConfigurationError("network.fifo", False, rule)


def _check_window(key: str, time_s: int, size: int) -> None:
    """As `Window` has it, by the name of the key."""
    try:
        Window(size, time_s * S)
    except ConfigurationError as error:
        named = key if error.key == "time_ns" else key.replace("window_s", "window_bytes")
        raise ConfigurationError(named, time_s if named == key else size, error.rule) from None
