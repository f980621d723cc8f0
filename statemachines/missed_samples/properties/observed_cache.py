"""ObservedCache: what a cache should have, reckoned from what came to it: which queues, and which numbers in each.

    seen = seen.observe_published(event, number, record)      samples came by, which the publisher counts from `number`
    seen = seen.observe_retention()                           a retention is over since somebody found no place
    seen, broken = seen.observe_told(event)                   it tells its host NotKept or LetGo
    broken = seen.judge_silence()                             nothing more is told of the step

Numbers are those that the publisher has counted, whatever they are on the wire.

ObservedStrangers: what of a subscriber's samples belongs to no source that it keeps, and must be told at once.

seen = seen.observe_stranger(event, width)      of a source for which there is no place
seen = seen.observe_unnumbered()                a sample without source information
seen, broken = seen.observe_told(event)         the application is told
broken = seen.judge_silence()                   nothing more is told of the step
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty, Event, Map
from statemachines.missed_samples.cache import CacheRecord, LetGo, NotKept, Place, Published
from statemachines.missed_samples.message import DeliverUnnumbered, Sample, TurnedAway
from statemachines.missed_samples.properties.settled_numbers import Broken
from statemachines.missed_samples.serial_number import WIDTH_MAX


class ObservedQueue(msgspec.Struct, frozen=True, gc=False):
    """The highest numbers that ever came, as bits from the lowest of them, `first`, on."""

    first: int
    numbers: int

    @property
    def last(self) -> int:
        """The highest number."""
        return self.first + self.numbers.bit_length() - 1

    def take(self, first: int, last: int, history: int) -> ObservedQueue:
        """With these numbers; of all the highest `history` stay."""
        begin = min(first, self.first)
        new = ((1 << (last - first + 1)) - 1) << (first - begin)
        numbers = self.numbers << (self.first - begin) | new
        for _ in range(numbers.bit_count() - history):
            numbers &= numbers - 1
        lowest = (numbers & -numbers).bit_length() - 1
        return ObservedQueue(begin + lowest, numbers >> lowest)

    def list_answer(self, first: int, last: int | None, newest: int) -> list[int]:
        """REPLIES: the numbers that a query from `first` to `last` (None: to the highest) is answered with; it wants
        the `newest` so many (0: all)."""
        high = self.last if last is None else min(last, self.last)
        found = [one for one in range(max(first, self.first), high + 1) if self.numbers >> (one - self.first) & 1]
        return found[-newest:]


class ObservedCache(msgspec.Struct, frozen=True, gc=False):
    """`queues` by source and key; `heard`: those into which something came since somebody found no place (None: nobody
    did); `owed`: what it must tell its host next; `not_kept`: so many samples found no place."""

    queues: Map[Place, ObservedQueue] = Map()
    heard: Map[Place, bool] | None = None
    owed: tuple[NotKept | LetGo, ...] = ()
    not_kept: int = 0

    def observe_published(self, event: Published, number: int, record: CacheRecord) -> ObservedCache:
        """Samples came by that the cache is there for; the publisher counts them from `number` on."""
        place, more, heard = (event.source, event.key), event.last - event.first, self.heard
        queue = self.queues.get(place)
        if queue is None and len(self.queues) >= record.places:
            owed = NotKept(event.key, event.source, event.first, event.last)
            return replace(
                self,
                heard=Map() if heard is None else heard,
                owed=(*self.owed, owed),
                not_kept=self.not_kept + more + 1,
            )
        queue = (queue or ObservedQueue(number, 0)).take(number, number + more, record.history)
        heard = None if heard is None else heard.set(place, True)
        return replace(self, queues=self.queues.set(place, queue), heard=heard)

    def observe_retention(self) -> ObservedCache:
        """The queues that were silent since somebody found no place go."""
        silent = [] if self.heard is None else sorted(place for place in self.queues if place not in self.heard)
        queues = self.queues
        for place in silent:
            queues = queues.delete(place)
        return replace(self, queues=queues, heard=None, owed=tuple(LetGo(key, source) for source, key in silent))

    def observe_told(self, event: NotKept | LetGo) -> tuple[ObservedCache, Broken]:
        """QUEUES: it tells its host what it should, in order."""
        if self.owed[:1] == (event,):
            return replace(self, owed=self.owed[1:]), ()
        return self, (BrokenProperty("QUEUES", f"{event} is told, expected {self.owed}"),)

    def judge_silence(self) -> Broken:
        """QUEUES: nothing is left that should have been told."""
        return (BrokenProperty("QUEUES", f"{self.owed} is not told"),) if self.owed else ()

    def judge_waiting(self, waits: bool) -> Broken:
        """QUEUES: it waits to see who is silent since somebody found no place."""
        if waits is (self.heard is not None):
            return ()
        return (BrokenProperty("QUEUES", f"it waits to see who is silent: {waits}, expected {not waits}"),)

    def judge_queues(self, names: set[Place]) -> Broken:
        """QUEUES: these and no others are there."""
        if names == set(self.queues):
            return ()
        return (BrokenProperty("QUEUES", f"queues {sorted(names)} in place of {sorted(self.queues)}"),)

    def judge_count(self, counted: int) -> Broken:
        """COUNT: so many samples are counted that found no place."""
        if counted == self.not_kept:
            return ()
        return (BrokenProperty("COUNT", f"{counted} samples found no place, in place of {self.not_kept}"),)

    def judge_contents(self, place: Place, count: int, first: int, last: int) -> Broken:
        """REPLIES: a queue has so many numbers, from the lowest to the highest of them."""
        queue = self.queues[place]
        wanted = (queue.numbers.bit_count(), queue.first, queue.last)
        if (count, first, last) == wanted:
            return ()
        detail = f"{place} has {count} numbers, {first}..{last}, in place of {wanted[0]}, {wanted[1]}..{wanted[2]}"
        return (BrokenProperty("REPLIES", detail),)


def judge_replies(said: list[tuple[str, int]], wanted: list[tuple[str, int]]) -> Broken:
    """REPLIES: a query is answered with these numbers of these sources."""
    return () if said == wanted else (BrokenProperty("REPLIES", f"{said} is answered in place of {wanted}"),)


def judge_room(count: int, queues: int, record: CacheRecord) -> Broken:
    """BOUND: a queue has `count` numbers, and there are so many `queues`."""
    if count <= record.history and queues <= record.places:
        return ()
    most = f"{record.history} in each of {record.places}"
    return (BrokenProperty("BOUND", f"{count} samples in one of {queues} queues, and there may be {most}"),)


class ObservedStrangers(msgspec.Struct, frozen=True, gc=False):
    """`turning`: what is turned away now; `unnumbered`: so many samples without source information are to be passed
    on; `turned_away`: so many samples, heartbeats and tokens found no place."""

    turning: TurnedAway | None = None
    unnumbered: int = 0
    turned_away: int = 0

    def observe_stranger(self, event: Event, width: int) -> ObservedStrangers:
        """A sample, heartbeat or token comes of a source that is not kept, and as many as may be are."""
        if not isinstance(event, Sample):
            return replace(self, turned_away=self.turned_away + 1)
        more = event.last - event.first
        first = event.first + (0 if width == WIDTH_MAX else 1 << width)  # as the application would count them
        turning = TurnedAway(event.source, first, first + more)
        return replace(self, turning=turning, turned_away=self.turned_away + more + 1)

    def observe_unnumbered(self) -> ObservedStrangers:
        """A sample without source information comes."""
        return replace(self, unnumbered=self.unnumbered + 1)

    def observe_told(self, event: TurnedAway | DeliverUnnumbered) -> tuple[ObservedStrangers, Broken]:
        """PLACES and INVENTED: the application is told what it should be."""
        if isinstance(event, DeliverUnnumbered):
            left = replace(self, unnumbered=max(0, self.unnumbered - 1))
            what = "a sample without source information is delivered, and none has come"
            return left, () if self.unnumbered else (BrokenProperty("INVENTED", what),)
        left = replace(self, turning=None)
        detail = f"{event} is told, expected {self.turning}"
        return left, () if event == self.turning else (BrokenProperty("PLACES", detail),)

    def judge_silence(self) -> Broken:
        """PLACES and INVENTED: nothing is left that should have been told."""
        broken: Broken = ()
        if self.turning is not None:
            broken = (BrokenProperty("PLACES", f"{self.turning} is not told"),)
        if self.unnumbered:
            broken += (BrokenProperty("INVENTED", "a sample without source information is not passed on"),)
        return broken

    def judge_count(self, counted: int) -> Broken:
        """COUNT: so many are counted that found no place."""
        if counted == self.turned_away:
            return ()
        return (BrokenProperty("COUNT", f"{counted} are counted as turned away in place of {self.turned_away}"),)


def judge_places(kept: int, known: int, strange: AbstractSet[str] = frozenset()) -> Broken:
    """PLACES: as many sources are kept as were met and not forgotten, and none of them is `strange`."""
    if kept == known and not strange:
        return ()
    return (BrokenProperty("PLACES", f"{kept} sources are kept in place of {known}, strange: {sorted(strange)}"),)
