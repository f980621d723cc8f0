"""SubscriberRecord: what a Subscriber keeps besides its sources, and what its host may tell it."""

from __future__ import annotations

import msgspec

from statemachines.kernel import Call, ConfigurationError, Map, Status, TimerFired
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.serial_number import WIDTH_MAX, check_width
from statemachines.missed_samples.source_record import SourceRecord


class Subscribe(Call, frozen=True, gc=False):
    """Begin; with history, by asking for it."""


class Unsubscribe(Call, frozen=True, gc=False):
    """Nothing is wanted any more."""


class HistoryTimeout(TimerFired, frozen=True, gc=False):
    """The first query has not ended in time."""


class HistoryRested(TimerFired, frozen=True, gc=False):
    """Time to ask for history again."""


class History(msgspec.Struct, frozen=True):
    """What to ask for at the beginning: the `newest` samples of each source (0: all that caches have), no older than
    `age_ms` milliseconds (0: of any age).  `ConfigurationError` names the value that cannot be."""

    newest: int = 0
    age_ms: int = 0

    def __post_init__(self) -> None:
        for key in ("newest", "age_ms"):
            if getattr(self, key) < 0:
                raise ConfigurationError(key, getattr(self, key), "at least 0")


class SubscriberStatus(Status):
    """Whether the first query is open, or waits to be sent again."""

    NEW = "new"
    HISTORY = "history"
    PAUSED = "paused"
    SUBSCRIBED = "subscribed"
    CLOSED = "closed"


NEW, HISTORY, PAUSED, SUBSCRIBED, CLOSED = SubscriberStatus
BEFORE = (HISTORY, PAUSED)
"""What was sent before is asked for, and nothing is delivered meanwhile."""
OPEN = (*BEFORE, SUBSCRIBED)


class SubscriberRecord(msgspec.Struct, frozen=True, gc=False):
    """One subscriber.  `history`: what to ask for first (None: nothing), and how many `tries` there were; `width` of
    the numbers on the wire, in bits; `queries`: no query that was sent about a source that is forgotten had a higher
    number; `turned_away`: so many samples, heartbeats and tokens were of sources for which there was no place.  Raises
    `ConfigurationError` for a width that no wire has."""

    recovery: Recovery = Recovery()
    history: History | None = None
    width: int = WIDTH_MAX
    status: SubscriberStatus = NEW
    sources: Map[str, SourceRecord] = Map()
    queries: int = 0
    tries: int = 0
    turned_away: int = 0

    def __post_init__(self) -> None:
        check_width(self.width)
