"""Truth: what a judge knows of one source at a subscriber, and what was broken.

It sees what came in, what was asked, and what was told, and nothing of any record.  Numbers are counted from the first
that can exist in the system on (0, 1, ...), whatever they are on the wire.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from statemachines.missed_samples.recovery import Recovery


class SampleViolation(Enum):
    """What was broken."""

    ORDER = "a number is delivered or reported that is settled"
    REPORT = "a number is passed over in silence"
    INVENTED = "what is delivered has not come, or what is reported was never heard of"
    NOGAP = "a number is reported missed that has come"
    HASTY = "a number is reported missed that was not asked for often enough"
    PROMPT = "what can be delivered, or is convicted, waits"
    BOUND = "more is held than may be"
    QUIET = "a query is sent, and nothing is missing"
    ASKED = "a query does not ask for what is missing"
    COUNT = "what is dropped is not counted"
    TIMING = "a timer is set for another moment than it should"
    TIMERS = "a timer does not run that should, or runs that should not"
    FORGOTTEN = "a source is forgotten that is not silent, or is remembered though it is"
    HISTORY = "something happens while the first query is open, or what came with it is not first"
    PLACES = "a source is turned away that has a place, or taken in where there is none, or in silence"
    REPLIES = "a cache does not answer with what it should have kept"
    QUEUES = "a cache has more queues than it may, or lets one go that was not silent, or in silence"


class Open(msgspec.Struct, frozen=True, gc=False):
    """A query that is waited for, in the place `place` of its source: for `range` (bits), from `first` on, of which
    `tried` were known to be missing; of those it wants the `newest` so many (0: all); `filled`: so many of `tried` have
    come since."""

    place: int
    first: int
    range: int
    tried: int
    newest: int = 0
    filled: int = 0


class Truth(msgspec.Struct, frozen=True, gc=False):
    """One source.  `began`: the first number that is ours (-1: no contact yet); `next`: the first that is not settled;
    `top`: the first never heard of.  `arrived`: what came (bits); `missed`: whether anything was reported.  `tries`: of
    each number the rounds of queries that brought nothing; `answered`: a query that was sent for it ended well, and
    brought something above it (bits).  `open`: the queries that are waited for; `failed`: what those of the same round
    were for that brought nothing (bits), `round`: what was missing when it began (bits).  `doubt`: a number that is too
    far ahead (-1: none)."""

    began: int = -1
    next: int = 0
    top: int = 0
    arrived: int = 0
    missed: int = 0
    tries: tuple[int, ...] = ()
    answered: int = 0
    open: tuple[Open, ...] = ()
    failed: int = 0
    round: int = 0
    doubt: int = -1
    waits: bool = False
    new: bool = False
    alive: bool = False
    heard: bool = False

    def missing(self) -> int:
        """The numbers that are known to exist, are ours, and have neither come nor been settled (bits)."""
        if self.began < 0:
            return 0
        return bits(self.next, self.top - 1) & ~self.arrived

    def is_kept(self) -> bool:
        """Something is known of the source."""
        return self.began >= 0 or self.alive

    def count_held(self) -> int:
        """How many have come, and are not settled."""
        return (self.arrived >> self.next).bit_count() if self.began >= 0 else 0

    def is_convicted(self, number: int, recovery: Recovery) -> bool:
        """It was asked for often enough, or a query for it came back."""
        return bool(self.answered >> number & 1) or self.tries[number] > recovery.retries


def bits(first: int, last: int) -> int:
    """The numbers from `first` to `last`."""
    return ((1 << (last + 1)) - 1) & ~((1 << first) - 1) if first <= last else 0


def from_start(truth: Truth, recovery: Recovery) -> bool:
    """What was before the first contact is ours."""
    return truth.new or (recovery.past and not truth.waits)


def note_existing(truth: Truth, first: int, last: int, recovery: Recovery) -> Truth:
    """Numbers up to `last` exist; where that is the first contact, it decides where the source begins."""
    if truth.began < 0:
        begin = 0 if from_start(truth, recovery) else first
        truth = replace(truth, began=begin, next=begin)
    return replace(truth, top=max(truth.top, truth.next, last + 1), heard=True)


def came(truth: Truth, first: int, last: int, recovery: Recovery) -> tuple[Truth, int]:
    """A sample came; how many of its numbers are new."""
    if first == last and is_doubted(truth, first, 1, recovery):
        return replace(truth, doubt=first), 0
    truth = note_existing(fill(truth, first, last), first, last, recovery)
    if truth.waits and first < truth.next:
        truth = replace(truth, began=first, next=first)
    new = bits(max(first, truth.next), last) & ~truth.arrived
    doubt = -1 if new else truth.doubt
    return replace(truth, arrived=truth.arrived | new, doubt=doubt), new.bit_count()


def fill(truth: Truth, first: int, last: int) -> Truth:
    """These come: what was missing of them fills the queries that were sent for it."""
    new = bits(first, last) & ~truth.arrived & ~bits(0, truth.next - 1)
    opened = tuple(replace(one, filled=one.filled + (one.range & new & bits(0, truth.top - 1)).bit_count())
                   for one in truth.open)  # fmt: skip
    return truth if opened == truth.open else replace(truth, open=opened)


def is_doubted(truth: Truth, number: int, least: int, recovery: Recovery) -> bool:
    """It is far ahead, and nothing so far ahead was said shortly before."""
    if truth.began < 0 or number - truth.top <= recovery.jump:
        return False
    return truth.doubt < 0 or not least <= number - truth.doubt <= recovery.jump


def query_sent(truth: Truth, place: int, first: int, last: int, newest: int) -> Truth:
    """It is for `first`..`last`."""
    asked = bits(first, last)
    missing = truth.missing()
    round_ = truth.round if truth.open or truth.failed else missing
    opened = (*truth.open, Open(place, first, asked, asked & missing, newest))
    return replace(truth, open=tuple(sorted(opened, key=lambda one: one.place)), round=round_)


def no_query(truth: Truth) -> Truth:
    """A sample came: with nothing missing after it, an open query is not waited for any more."""
    return truth if truth.missing() else replace(truth, open=(), failed=0, round=0)


def query_over(truth: Truth, place: int, brought: int, recovery: Recovery) -> Truth:
    """What it was sent for was asked for once more, or is answered; `brought` as in `QueryEnded`."""
    one = next(one for one in truth.open if one.place == place)
    truth = replace(truth, open=tuple(other for other in truth.open if other is not one))
    whole = not one.newest or one.filled < one.newest - 1
    if brought and recovery.reliable and whole:
        truth = replace(truth, answered=truth.answered | one.range & bits(one.first, one.first + brought - 1))
    elif not one.filled:
        truth = replace(truth, failed=truth.failed | one.tried)
    return truth if truth.open else round_over(truth, False, recovery)


def silence(truth: Truth, recovery: Recovery) -> Truth:
    """No query is waited for any more."""
    failed, silent = truth.failed, True
    for one in truth.open:
        failed |= 0 if one.filled else one.tried
        silent = silent and not one.filled
    return round_over(replace(truth, open=(), failed=failed), silent, recovery)


def round_over(truth: Truth, silent: bool, recovery: Recovery) -> Truth:
    """The lowest numbers for which all was in vain were tried once more: of a silent round, all that was missing."""
    missing = truth.missing() & ~truth.answered
    left = missing & ~truth.failed
    lowest = left & -left
    tried = missing & (lowest - 1 if lowest else -1)
    if silent and tried:
        tried = missing & (tried | truth.round)
    tries = tuple(min(count + (tried >> number & 1), recovery.retries + 1)
                  for number, count in enumerate(truth.tries))  # fmt: skip
    return replace(truth, failed=0, round=0, tries=tries)


def note_delivered(truth: Truth, first: int, last: int) -> tuple[Truth, set[SampleViolation]]:
    """The application was given a range."""
    truth, found = _settled(truth, first, last)
    if bits(first, last) & ~truth.arrived:
        found.add(SampleViolation.INVENTED)
    return truth, found


def note_missed(truth: Truth, first: int, last: int, recovery: Recovery) -> tuple[Truth, set[SampleViolation]]:
    """The application was told that a range will not come."""
    crowded = truth.count_held() > recovery.pending
    truth, found = _settled(truth, first, last)
    if last >= truth.top:
        found.add(SampleViolation.INVENTED)
    if bits(first, last) & truth.arrived:
        found.add(SampleViolation.NOGAP)
    if not crowded and not all(truth.is_convicted(one, recovery) for one in range(first, min(last + 1, truth.top))):
        found.add(SampleViolation.HASTY)
    return replace(truth, missed=truth.missed | bits(first, last)), found


def faults_after(truth: Truth, recovery: Recovery) -> set[SampleViolation]:
    """What is wrong when a step is over."""
    if truth.began < 0:
        return set()
    if truth.waits:
        return {SampleViolation.BOUND} if truth.count_held() > recovery.history_limit else set()
    found = {SampleViolation.BOUND} if truth.count_held() > recovery.pending else set()
    if truth.next < truth.top and (truth.arrived >> truth.next & 1 or truth.is_convicted(truth.next, recovery)):
        found.add(SampleViolation.PROMPT)
    return found


def backoff_ms(truth: Truth, recovery: Recovery) -> int:
    """The pause before the next query for the first number that is missing."""
    pause = recovery.backoff_ms
    for _ in range(truth.tries[truth.next] - 1):
        pause = min(2 * pause, recovery.backoff_max_ms)
    return pause


def settle_truth(truth: Truth) -> Truth:
    """Without what nothing depends on any more, so that equal situations are one state."""
    past = (1 << truth.next) - 1
    tries = tuple(0 if number < truth.next else count for number, count in enumerate(truth.tries))
    return replace(
        truth,
        arrived=truth.arrived & ~past,
        missed=min(truth.missed, 1),
        answered=truth.answered & ~past,
        failed=truth.failed & ~past,
        round=truth.round & ~past,
        tries=tries,
    )


def _settled(truth: Truth, first: int, last: int) -> tuple[Truth, set[SampleViolation]]:
    found = set()
    if truth.waits:
        found.add(SampleViolation.HISTORY)
    if first < truth.next:
        found.add(SampleViolation.ORDER)
    if first > truth.next:
        found.add(SampleViolation.REPORT)
    return replace(truth, next=max(truth.next, last + 1)), found
