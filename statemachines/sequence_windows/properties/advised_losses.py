"""AdvisedLosses: what a client must be advised of, and what its advisories say (THROTTLE, NOTIFY, CONTENT).

Times are those of whoever feeds it.  Where they must be bounded, it is always 0 o'clock, and `pass_time` puts the past
further back.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty
from statemachines.sequence_windows.loss_notifier import LISTED, LOST_MAX, Advisory
from statemachines.sequence_windows.properties.names import NOTIFY, THROTTLE

Losses = tuple[tuple[str, int], ...]
Broken = tuple[BrokenProperty, ...]


class AdvisedLosses(msgspec.Struct, frozen=True, gc=False):
    """One client."""

    waits: Losses = ()
    """Losses since the last advisory: (subject, how many; 0: unknown), the first subject first."""
    rest: int = 0
    """So many more did not fit into the last advisory."""
    since: int | None = None
    """When the first of them was lost (None: nothing waits)."""
    advised_at: int | None = None
    """When the last advisory was, by the client's clock (None: never, or long ago)."""
    newest: Losses = ()
    """Those of `waits` of which a client need not hear before its due timer has fired."""
    settled: Losses = ()
    """What waited before them."""

    @property
    def owed(self) -> int:
        """How many messages wait in all."""
        return self.rest + sum(count for _, count in self.waits)

    def lose(self, losses: Losses, now: int) -> AdvisedLosses:
        """These are missing, as the message says that is being handled."""
        since = now if self.since is None else self.since
        return replace(self, waits=add_losses(self.waits, losses), since=since, newest=losses, settled=self.waits)

    def settle_newest(self) -> AdvisedLosses:
        """The message was handled."""
        return replace(self, newest=(), settled=()) if self.newest else self

    def pass_time(self, by: int, most: int) -> AdvisedLosses:
        """The past lies further back by so much; `most` is as long ago as ever."""
        since = None if self.since is None else max(-most, self.since - by)
        advised_at = None if self.advised_at is None or self.advised_at - by <= -most else self.advised_at - by
        return replace(self, since=since, advised_at=advised_at)

    def observe(
        self, told: Advisory, now: int, clock: int, second: int, content: str = THROTTLE
    ) -> tuple[AdvisedLosses, Broken]:
        """The client is advised; its own clock says `clock`.  What it says wrongly breaks `content`."""
        broken = []
        if self.advised_at is not None and clock - self.advised_at < second:
            broken.append(BrokenProperty(THROTTLE, f"is advised again after {clock - self.advised_at}"))
        whole = told == make_advisory(self.waits, self.rest)
        early = bool(self.newest) and told == make_advisory(self.settled, self.rest)
        if not (told.lost or told.subjects) or not (whole or early):
            broken.append(BrokenProperty(content, f"is advised of {told}, and {self.waits} and {self.rest} wait"))
        after = AdvisedLosses(advised_at=clock)
        if self.newest and not whole:
            return after.lose(self.newest, now), tuple(broken)
        rest = self.owed - told.lost
        return replace(after, rest=rest, since=now if rest else None), tuple(broken)

    def judge_wait(self, now: int, longest: int, excused_until: int = 0, *, alarm: bool = True) -> Broken:
        """NOTIFY: nothing waits for longer, unless it was excused; `alarm`: the client is to be woken."""
        if self.since is None or (alarm and now <= max(self.since + longest, excused_until)):
            return ()
        return (BrokenProperty(NOTIFY, f"{self.owed} losses wait since {self.since} for an advisory"),)

    def judge_count(self, lost: int) -> Broken:
        """THROTTLE: what a notifier has not told is what waits."""
        return () if lost == self.owed else (BrokenProperty(THROTTLE, f"has {lost} to tell, and {self.owed} wait"),)


def add_losses(waits: Losses, losses: Losses) -> Losses:
    """What waits, and these besides."""
    counts = dict(waits)
    for subject, count in losses:
        counts[subject] = counts.get(subject, 0) + count
    return tuple(counts.items())


def make_advisory(waits: Losses, rest: int) -> Advisory:
    """The advisory that says what waits, and the rest of the one before, as far as it has room."""
    owed = rest + sum(count for _, count in waits)
    listed = tuple((subject, min(count, LOST_MAX)) for subject, count in waits[:LISTED])
    return Advisory(min(owed, LOST_MAX), len(waits), listed)
