"""ObservedSource: what an onlooker knows of one source at a subscriber, and what breaks there.

It is fed what comes, what is asked for, and what is told, and sees nothing of any record:

    seen = seen.observe_samples(first, last, recovery)            a sample comes
    seen, broken = seen.observe_query(asked, recovery)            the subscriber sends a query
    seen = seen.observe_query_end(n, brought, recovery)           a query ends
    seen, broken = seen.observe_delivered(first, last)            the application is given samples
    seen, broken = seen.observe_missed(first, last, recovery)     the application is told of a loss
    broken = seen.judge_step(recovery)                            the step is over

Numbers are those that the publisher has counted, whatever they are on the wire.  A set of numbers is an int: its bit 0
is the number `next`, so that no event costs more than what is held.

AskedNumbers and OpenQuery: a query as it is sent, and while it is waited for.

Subscriber rules: properties of a subscriber that need no memory of one source.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty
from statemachines.missed_samples.message import PARTLY, Query
from statemachines.missed_samples.properties.settled_numbers import Broken, judge_range
from statemachines.missed_samples.recovery import MS, SENT_MAX, Recovery
from statemachines.missed_samples.subscriber_record import History


def owes_tail(sent: int, settled: int) -> bool:
    """TAIL: more was sent than is delivered or reported."""
    return sent > settled


def judge_whole(missed: bool) -> Broken:
    """WHOLE: something is reported missed, where nothing may be."""
    return (BrokenProperty("WHOLE", "something is reported missed where nothing may be"),) if missed else ()


def judge_memory(kept: int) -> Broken:
    """FORGOTTEN: so many sources are kept, where each was silent for a retention and is not known to live."""
    return (BrokenProperty("FORGOTTEN", f"{kept} silent sources are kept"),) if kept else ()


def judge_unwanted(opened: bool) -> Broken:
    """QUIET: a query about every source is sent, and the first query is `opened`."""
    return () if opened else (BrokenProperty("QUIET", "history is asked for that nobody wants"),)


def judge_first_query(query: Query, wanted: History, tries: int) -> Broken:
    """ASKED: a query about every source asks for the history that is wanted, as the next of so many `tries`."""
    if (query.n, query.newest, query.age_ms) == (tries + 1, wanted.newest, wanted.age_ms):
        return ()
    return (BrokenProperty("ASKED", f"{query} asks for another history than {wanted}"),)


def judge_hole(still_ns: int, recovery: Recovery) -> Broken:
    """LIVE: a hole is known for so long, and nothing that was missing has come meanwhile."""
    if still_ns <= 2 * recovery.deadline_ms * MS:
        return ()
    return (BrokenProperty("LIVE", f"a hole lasts for {still_ns // MS} ms in vain"),)


class AskedNumbers(msgspec.Struct, frozen=True, gc=False):
    """A query `n` for `first` to `last` (`last` below `first`: it looks for the newest there is); of those it wants the
    `newest` so many (0: all).  `periodic`: the period of its source is over; `again`: something was waited for long
    enough, or came in part."""

    n: int
    first: int
    last: int
    newest: int = 0
    periodic: bool = False
    again: bool = False

    @property
    def has_end(self) -> bool:
        """Whether it asks for a range, and does not look for the newest."""
        return self.last >= self.first


class OpenQuery(msgspec.Struct, frozen=True, gc=False):
    """What is waited for: `sent` are the queries for it, by number and first, of which any may bring it.  `tried`: what
    was known to be missing when it was asked for (bits from `first` on); `filled`: so many of those have come since."""

    sent: tuple[tuple[int, int], ...]
    first: int
    last: int
    newest: int
    tried: int
    filled: int = 0

    def know(self, top: int) -> OpenQuery:
        """Numbers from `top` on do not exist."""
        return replace(self, tried=self.tried & ((1 << max(top - self.first, 0)) - 1))

    def forget(self, n: int) -> OpenQuery:
        """Without the query of this number."""
        sent = tuple(one for one in self.sent if one[0] != n)
        return self if len(sent) == len(self.sent) else replace(self, sent=sent)

    @property
    def is_wanted(self) -> bool:
        """It asks for numbers, and does not look for the newest."""
        return self.last >= self.first

    @property
    def is_whole(self) -> bool:
        """All that a cache has of it fits into what it asks for."""
        return not self.newest or self.filled < self.newest - 1


class ObservedSource(msgspec.Struct, frozen=True, gc=False):
    """`began`: the first number that is ours (-1: no contact yet); `next`: the first that is not settled; `top`: the
    first never heard of.  `arrived`: what has come (bits from `next` on, as all sets here); `missed`: something was
    reported.  `tries`: what was asked for in vain once, twice, and so on (empty: nothing); `answered`: a query for it
    ended well, and brought something above it.  `open`: the queries that are waited for; `failed`: one of the same
    round brought nothing, and `in_vain` is what such were for; `front`: what `next` was when `tries` were counted.
    `late`: what may be given up in this step, since it is overdue.  `doubt`: a number that is too
    far ahead (-1: none).  `dropped`: so many samples were not new.  `waits`: the first query of the subscriber is open;
    `alive`, `new`: its token, and that it came up while we were there; `heard`: since the last retention."""

    began: int = -1
    next: int = 0
    top: int = 0
    arrived: int = 0
    missed: bool = False
    tries: tuple[int, ...] = ()
    answered: int = 0
    open: tuple[OpenQuery, ...] = ()
    in_vain: int = 0
    failed: bool = False
    front: int = 0
    late: int = 0
    doubt: int = -1
    dropped: int = 0
    waits: bool = False
    new: bool = False
    alive: bool = False
    heard: bool = False

    # -- reading it ---------------------------------------------------------------------------------------------------

    @property
    def missing(self) -> int:
        """The numbers that are known to exist, are ours, and have neither come nor been settled."""
        return self.select(self.next, self.top - 1) & ~self.arrived if self.began >= 0 else 0

    @property
    def is_missing_any(self) -> bool:
        """Whether any number is missing."""
        return self.began >= 0 and self.top - self.next > self.arrived.bit_count()

    @property
    def has_hole(self) -> bool:
        """LIVE, TAIL: something is known to exist and is not settled."""
        return self.began >= 0 and self.next < self.top

    @property
    def is_kept(self) -> bool:
        """Something is known of the source."""
        return self.began >= 0 or self.alive

    @property
    def held_count(self) -> int:
        """How many have come and are not settled."""
        return self.arrived.bit_count()

    @property
    def attempts(self) -> int:
        """How often the first number that is not settled was asked for in vain."""
        return sum(one & 1 for one in self.tries) if self.front == self.next else 0

    def has_come(self, number: int) -> bool:
        """NOGAP: whether it is settled, or has come; while the first query is open nothing is settled."""
        at = number - self.next
        return not self.waits if at < 0 else bool(self.arrived >> at & 1)

    def select(self, first: int, last: int) -> int:
        """The numbers `first` to `last` that are not settled."""
        low, high = max(first - self.next, 0), last - self.next + 1
        return (1 << high) - (1 << low) if low < high else 0

    def list_convicted(self, recovery: Recovery) -> int:
        """The numbers that were asked for often enough, or that an answer would have brought."""
        return self.answered | (self.tries[recovery.retries] if self.tries else 0)

    def is_from_start(self, recovery: Recovery) -> bool:
        """What was before the first contact is ours."""
        return self.new or (recovery.past and not self.waits)

    def is_met_by_token(self, recovery: Recovery) -> bool:
        """It is known by its token alone, and all that it has sent is ours."""
        return self.began < 0 and self.alive and not self.waits and self.is_from_start(recovery)

    def can_forget(self, silent: bool) -> bool:
        """FORGOTTEN: it may be forgotten, and then it is; `silent`: nothing came of it for a retention."""
        return silent and not self.alive and not self.is_missing_any

    def is_doubted(self, number: int, least: int, recovery: Recovery) -> bool:
        """It is far ahead, and nothing so far ahead was said shortly before."""
        if self.began < 0 or number - self.top <= recovery.jump:
            return False
        return self.doubt < 0 or not least <= number - self.doubt <= recovery.jump

    def pause_ms(self, recovery: Recovery) -> int:
        """TIMING: the pause before the first number that is missing is asked for again: it doubles."""
        pause = recovery.pacing.backoff_ms
        for _ in range(self.attempts - 1):
            pause = min(2 * pause, recovery.pacing.backoff_max_ms)
        return pause

    # -- what comes ---------------------------------------------------------------------------------------------------

    def observe_samples(self, first: int, last: int, recovery: Recovery) -> ObservedSource:
        """Samples came."""
        if first == last and self.is_doubted(first, 1, recovery):
            return replace(self, doubt=first, dropped=self.dropped + 1)
        seen = self._begin(first, recovery)
        began, begin, arrived = seen.began, seen.next, seen.arrived
        if seen.waits and first < begin:  # a source begins with the lowest that came
            began, arrived, begin = first, arrived << (begin - first), first
            seen = replace(seen, next=first)
        new = seen.select(first, last) & ~arrived
        after = replace(
            seen,
            began=began,
            top=max(seen.top, last + 1),
            arrived=arrived | new,
            open=seen._fill_queries(new) if seen.open else (),
            doubt=-1 if new else seen.doubt,
            dropped=seen.dropped + last - first + 1 - new.bit_count(),
            heard=True,
        )
        return after._forget_queries()

    def observe_heartbeat(self, last: int, recovery: Recovery) -> ObservedSource:
        """Its publisher says that it has sent everything up to `last`."""
        if self.is_doubted(last, 0, recovery):
            return replace(self, doubt=last, heard=True)
        seen = self._begin(last + 1, recovery)
        above, top = seen.next + seen.arrived.bit_length(), last + 1
        if above <= top < seen.top:
            known = seen.select(seen.next, last)
            tries = tuple(one & known for one in seen.tries)
            answered, in_vain = seen.answered & known, seen.in_vain & known
            opened = tuple(one.know(top) for one in seen.open)
            seen = replace(seen, tries=tries, answered=answered, in_vain=in_vain, open=opened)
            return replace(seen, top=top, heard=True)._forget_queries()
        return replace(seen, top=max(seen.top, top), heard=True)

    def _begin(self, first: int, recovery: Recovery) -> ObservedSource:
        """The first contact decides where the source begins."""
        if self.began >= 0:
            return self
        begin = 0 if self.is_from_start(recovery) else first
        return replace(self, began=begin, next=begin, top=begin)

    def _fill_queries(self, new: int) -> tuple[OpenQuery, ...]:
        """What was missing of these fills the queries that were sent for it."""
        found = []
        for one in self.open:
            count = (new & self.select(one.first, min(one.last, self.top - 1))).bit_count()
            found.append(replace(one, filled=one.filled + count) if count else one)
        return tuple(found)

    def _forget_queries(self) -> ObservedSource:
        """What has come whole is not waited for, unless a query of the same round has failed; with nothing missing no
        query is."""
        if not self.is_missing_any:
            waits = self.open or self.failed or self.tries
            return replace(self, open=(), in_vain=0, failed=False, tries=(), front=0) if waits else self
        if self.failed or not self.open:
            return self
        missing = self.missing
        left = tuple(one for one in self.open if not one.is_wanted or missing & self.select(one.first, one.last))
        return replace(self, open=left) if len(left) < len(self.open) else self

    # -- queries ------------------------------------------------------------------------------------------------------

    def observe_query(self, asked: AskedNumbers, recovery: Recovery) -> tuple[ObservedSource, Broken]:
        """The subscriber sent a query: QUIET and ASKED."""
        if not asked.has_end and self.is_met_by_token(recovery):
            return self, ()
        broken = []
        missing, first = self.missing, asked.first
        where = f"query {asked.n} from {first} on"
        others = tuple(one.forget(asked.n) for one in self.open)  # of two with one number the later counts
        around = next((one for one in others if one.first <= first <= one.last), None) if asked.again else None
        if around is not None:
            sent = (*around.sent, (asked.n, first))[-SENT_MAX:]
            return replace(self, open=tuple(replace(one, sent=sent) if one is around else one for one in others)), ()
        if asked.again and not missing & self.select(first, first):
            return self, ()  # it has come with the same turn
        if not missing and (asked.has_end or not asked.periodic):
            broken.append(BrokenProperty("QUIET", f"{where}, and nothing is missing"))
        if len(self.open) >= recovery.pacing.windows or self.waits:
            broken.append(BrokenProperty("ASKED", f"{where}, and other queries are waited for"))
        elif asked.has_end and self.open:
            left = missing
            for one in self.open:
                left &= ~self.select(one.first, one.last)
            if not left & self.select(first, first):
                broken.append(BrokenProperty("ASKED", f"{where}, which is not missing, or asked for already"))
        elif first != self.next + (missing & -missing).bit_length() - (1 if missing else 0):
            broken.append(BrokenProperty("ASKED", f"{where}, and it is not the first that is missing"))
        last = min(asked.last, max(self.top - 1, first)) if asked.has_end and not asked.newest else asked.last
        if asked.last - last > recovery.pacing.ahead:
            broken.append(BrokenProperty("ASKED", f"{where} up to {asked.last}, and {self.top} was never heard of"))
        tried = move_bits(missing & self.select(first, last), self.next - first)
        one = OpenQuery(((asked.n, first),), first, last, asked.newest, tried)
        opened = tuple(sorted((*others, one), key=lambda one: one.first))
        return replace(self, open=opened), tuple(broken)

    def observe_query_end(self, n: int, brought: int, recovery: Recovery) -> ObservedSource:
        """The query has ended; `brought` as in `QueryEnded`.  One that is not waited for changes nothing."""
        seen = self.close_query(n, brought, recovery)
        return seen if seen is self or seen.open else seen.end_round(recovery)

    def observe_timeout(self, recovery: Recovery) -> ObservedSource:
        """Nobody has answered for so long: nobody waits for the newest any more, nor for what has come."""
        missing = self.missing
        left = tuple(one for one in self.open if missing & self.select(one.first, one.last))
        seen = replace(self, open=left)
        return seen if left else seen.end_round(recovery)

    def observe_overdue(self, numbers: int) -> ObservedSource:
        """These may be given up now, if anything that was missing did not come meanwhile."""
        return replace(self, late=numbers)

    def close_query(self, n: int, brought: int, recovery: Recovery) -> ObservedSource:
        """What it was sent for is answered, or was asked for in vain."""
        one = next((one for one in self.open if n in dict(one.sent)), None)
        if one is None or brought == PARTLY:
            return self
        left = tuple(other for other in self.open if other is not one)
        if brought and recovery.reliable and one.is_whole:
            answered = self.select(one.first, min(one.last, dict(one.sent)[n] + brought - 1))
            return replace(self, open=left, answered=self.answered | answered)
        if one.filled or not one.is_wanted:
            return replace(self, open=left)
        return replace(self, open=left, failed=True, in_vain=self.in_vain | move_bits(one.tried, one.first - self.next))

    def end_round(self, recovery: Recovery) -> ObservedSource:
        """The lowest numbers for which all was in vain were tried once more, since the first of them is missing."""
        missing = self.missing & ~self.answered
        left = missing & ~self.in_vain
        tried = missing & ((left & -left) - 1 if left else -1)
        tries = self.tries if self.tries and self.front == self.next else (0,) * (recovery.retries + 1)
        if not tried:
            return replace(self, in_vain=0, failed=False)
        tries = tuple(one | (tried & below) for one, below in zip(tries, (-1, *tries), strict=False))
        return replace(self, in_vain=0, failed=False, tries=tries, front=self.next)

    # -- what is told -------------------------------------------------------------------------------------------------

    def observe_delivered(self, first: int, last: int) -> tuple[ObservedSource, Broken]:
        """The application was given samples: HISTORY, ORDER, ONCE, REPORT and INVENTED."""
        broken = self._judge_told(first, last)
        if self.select(first, last) & ~self.arrived:
            broken += (BrokenProperty("INVENTED", f"{first}..{last} is delivered, and not all of it has come"),)
        return self._settle(last), broken

    def observe_missed(self, first: int, last: int, recovery: Recovery) -> tuple[ObservedSource, Broken]:
        """The application was told that samples will not come: HISTORY, ORDER, ONCE, REPORT, INVENTED, NOGAP, HASTY."""
        broken = self._judge_told(first, last)
        told = self.select(first, last)
        if told & self.arrived:
            broken += (BrokenProperty("NOGAP", f"{first}..{last} is reported missed, and has come"),)
        known = told & self.select(self.next, self.top - 1)
        if known & ~(self.list_convicted(recovery) | self.late) and self.held_count <= recovery.pending:
            broken += (BrokenProperty("HASTY", f"{first}..{last} is given up, and was not asked for often enough"),)
        return replace(self._settle(last), missed=True), broken

    def _judge_told(self, first: int, last: int) -> Broken:
        if not self.is_kept:
            return (BrokenProperty("INVENTED", f"{first}..{last} is told, and nothing is known of its source"),)
        broken = judge_range(self.began, self.next, first, last)
        if self.waits:
            broken = (BrokenProperty("HISTORY", f"{first}..{last} is told while the first query is open"), *broken)
        if last >= self.top:
            broken += (BrokenProperty("INVENTED", f"{first}..{last} is told, and {self.top} was never heard of"),)
        return broken

    def _settle(self, last: int) -> ObservedSource:
        """Up to here everything is delivered or reported: nothing depends on it any more."""
        by = last + 1 - self.next
        if by <= 0:
            return self
        tries = tuple(one >> by for one in self.tries)
        after = replace(
            self,
            next=last + 1,
            arrived=self.arrived >> by,
            answered=self.answered >> by,
            in_vain=self.in_vain >> by,
            late=self.late >> by,
            front=self.front if tries and tries[0] else 0,
            tries=tries if tries and tries[0] else (),
        )
        return after._forget_queries()

    # -- when a step is over ------------------------------------------------------------------------------------------

    def judge_step(self, recovery: Recovery) -> Broken:
        """BOUND and ISOLATION."""
        if self.began < 0:
            return ()
        most = recovery.history_limit if self.waits else recovery.pending
        broken: Broken = ()
        if self.held_count > most:
            broken = (BrokenProperty("BOUND", f"{self.held_count} samples are held in place of {most}"),)
        if not self.waits and self.arrived & 1 and self.has_hole:
            broken += (BrokenProperty("ISOLATION", f"{self.next} has come, and waits"),)
        return broken

    def judge_convicted(self, recovery: Recovery) -> Broken:
        """PROMPT: what is convicted does not wait."""
        if self.waits or not self.has_hole or not self.list_convicted(recovery) & 1:
            return ()
        return (BrokenProperty("PROMPT", f"{self.next} is convicted, and waits"),)

    def judge_count(self, counted: int) -> Broken:
        """COUNT: the subscriber counts so many samples as dropped."""
        if counted == self.dropped:
            return ()
        return (BrokenProperty("COUNT", f"{counted} samples are counted as dropped in place of {self.dropped}"),)

    def judge_forgotten(self, silent: bool, kept: bool = False) -> Broken:
        """FORGOTTEN: it is forgotten now, or `kept` although it may be forgotten; `silent` as in `can_forget`."""
        if self.can_forget(silent) is not kept:
            return ()
        what = f"silent: {silent}, alive: {self.alive}, missing: {self.is_missing_any}"
        return (BrokenProperty("FORGOTTEN", f"it is {'kept' if kept else 'forgotten'}; {what}"),)

    def judge_idle(self, rests: bool) -> Broken:
        """ASKED: something is missing, and neither is a query waited for nor does it rest before the next."""
        if rests or self.waits or self.open or not self.is_missing_any:
            return ()
        return (BrokenProperty("ASKED", f"{self.next} is missing, and nobody is asked"),)

    def judge_token(self, new: bool, asked: bool, recovery: Recovery) -> Broken:
        """ASKED: its token appears, and it is asked where that is all that is known of it."""
        if asked or self.alive or not replace(self, alive=True, new=new).is_met_by_token(recovery):
            return ()
        return (BrokenProperty("ASKED", "it is met by its token, and nobody is asked"),)

    def judge_owed(self, numbers: AbstractSet[int]) -> Broken:
        """NOGAP: a query has ended, and caches that it reached had these numbers."""
        left = sorted(one for one in numbers if not self.has_come(one))
        if not left:
            return ()
        return (BrokenProperty("NOGAP", f"a query has ended, and a cache that it reached had {left[:5]}"),)

    # -- when all is quiet --------------------------------------------------------------------------------------------

    def judge_settled(self) -> Broken:
        """LIVE: every hole is settled, once the first query is over."""
        if self.waits or not self.has_hole:
            return ()
        return (BrokenProperty("LIVE", f"{self.next} is waited for"),)

    def judge_tail(self, sent: int) -> Broken:
        """TAIL: everything that was sent is delivered or reported."""
        if self.began < 0 or not owes_tail(sent, self.next):
            return ()
        return (BrokenProperty("TAIL", f"{self.next} of {sent} are heard of"),)

    def judge_reached(self, last: int) -> Broken:
        """NOGAP: a cache has numbers up to `last`, and was asked unprompted."""
        if self.began < 0 or last < self.next:
            return ()
        return (BrokenProperty("NOGAP", f"a cache has {last}, and {self.next} are heard of"),)


def move_bits(numbers: int, by: int) -> int:
    """The same numbers, where bit 0 is the number `by` lower."""
    return numbers << by if by >= 0 else numbers >> -by
