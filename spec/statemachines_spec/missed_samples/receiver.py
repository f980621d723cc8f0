"""Receiver: a subscriber as a component, and the judge of all that it does.

Queries go to the fabric with a place in place of their number: the fabric needs no numbers, and states that differ in
them alone are one.  A query takes a place whose query is not waited for any more.

Query numbers: a record whose queries are numbered anew, so that states that differ only in such numbers are one.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Effects, Event, SetTimer, Tell
from statemachines.missed_samples.message import (
    EVERY_SOURCE,
    PARTLY,
    QUERY,
    Deliver,
    Heartbeat,
    Missed,
    Query,
    QueryEnded,
    QueryGoesOn,
    Sample,
    TurnedAway,
)
from statemachines.missed_samples.properties import (
    AskedNumbers,
    Broken,
    ObservedSource,
    ObservedStrangers,
    judge_first_query,
    judge_places,
    judge_unwanted,
)
from statemachines.missed_samples.recovery import MS, Recovery
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.missed_samples.source_record import (
    Appeared,
    Disappeared,
    Overdue,
    PeriodOver,
    QueryTimeout,
    QueryWindow,
    RetentionOver,
    SentQuery,
    WindowStatus,
)
from statemachines.missed_samples.source_windows import AT_ONCE
from statemachines.missed_samples.subscriber import SUBSCRIBER as MACHINE
from statemachines.missed_samples.subscriber_record import (
    History,
    HistoryRested,
    HistoryTimeout,
    Subscribe,
    SubscriberRecord,
)
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import Party, begin, list_firings, step_party, timer_words
from statemachines_spec.explorer.property import View
from statemachines_spec.missed_samples.fabric import SUBSCRIBER, Asked, Ended, GoesOn
from statemachines_spec.missed_samples.violations import COUNT_OF_PLACES, SampleViolation, name_violations

Places = tuple[tuple[int, ...], ...]
"""Of each source the numbers of the queries in its places (0: none was there)."""


def renumber_queries(
    record: SubscriberRecord, sources: tuple[str, ...], places: Places
) -> tuple[SubscriberRecord, Places]:
    """The record and the places with queries numbered anew: of each source those that may still be answered are 2, 3,
    ..., and all before them 1; with nothing dropped, nobody turned away, and nothing learned of times, which stand."""
    kept, found = record.sources, []
    for source, numbers in zip(sources, places, strict=True):
        one = kept.get(source)
        windows = () if one is None else one.windows
        sent = {asked.n for window in windows for asked in window.sent if asked.n in numbers}
        names = {n: 2 + at for at, n in enumerate(sorted(sent))}
        newest = record.queries if one is None else one.query_n
        found.append(tuple(names.get(n, _number(n, newest)) for n in numbers))
        if one is not None:
            asking = one.asking
            asking = replace(
                asking,
                windows=tuple(_renumber(window, names) for window in windows),
                over=(), answer_ns=0, spread_ns=0,
                front=asking.front if asking.asked else 0,
            )  # fmt: skip
            query_n = 1 + len(names) if one.query_n else 0
            kept = kept.set(source, replace(one, query_n=query_n, dropped=0, asking=asking))
    queries = 1 if record.queries else 0
    return replace(record, sources=kept, queries=queries, turned_away=0), tuple(found)


def _renumber(window: QueryWindow, names: dict[int, int]) -> QueryWindow:
    sent = tuple(replace(one, n=names[one.n], sent_ns=0) for one in window.sent if one.n in names)
    if not sent and window.status is WindowStatus.OPEN:
        sent = (SentQuery(-1, window.first),)
    return replace(window, sent=sent, heard=False, silent=min(window.silent, AT_ONCE))


def _number(n: int, newest: int) -> int:
    """What the number of a query becomes that is over: one that cannot be, 99."""
    if n == 0 or n > newest:
        return 99 if n else 0
    return 1


EVERYTHING = 1 << 20
"""What a query has brought that ended well, and asked for less."""


class SampleReceiverLocal(msgspec.Struct, frozen=True, gc=False):
    """`seen` by source; `places`: the numbers of the queries in the places of each source; `begun`; `history`: the
    first query is open, or (`paused`) sent again soon, after `tries`; `turned`: the sources that were turned away, once
    at least."""

    party: Party
    seen: tuple[tuple[str, ObservedSource], ...]
    places: tuple[tuple[int, ...], ...]
    begun: bool = False
    history: bool = False
    paused: bool = False
    tries: int = 0
    turned: tuple[str, ...] = ()
    broken: tuple[SampleViolation, ...] = ()


class SampleReceiver(Actor):
    """`count`: so many numbers there are, from `begin` on the wire; `silent` timers never fire; `tokens`: whether
    sources may appear (and, where `leaves`, disappear); `gives_up`: what a query does not bring is given up."""

    def __init__(
        self,
        *,
        sources: tuple[str, ...],
        recovery: Recovery,
        count: int,
        history: History | None = None,
        width: int = 64,
        begin: int = 0,
        silent: tuple[str, ...] = (),
        tokens: bool = False,
        leaves: bool = False,
        gives_up: bool = False,
    ) -> None:
        super().__init__(SUBSCRIBER, silent=silent)
        self.sources = sources
        self.recovery = recovery
        self.history = history
        self.count = count
        self.width = width
        self.begin = begin
        self.tokens = tokens
        self.leaves = leaves
        self.gives_up = gives_up
        self.fsm = MACHINE

    @property
    def _asks(self) -> bool:
        """It begins with a query."""
        return self.history is not None

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> SampleReceiverLocal:
        record = SubscriberRecord(self.recovery, self.history, self.width)
        return SampleReceiverLocal(
            begin(self.fsm, record),
            tuple((source, ObservedSource()) for source in self.sources),
            ((0,) * self._places,) * len(self.sources),
        )

    def inputs(self, local: SampleReceiverLocal) -> tuple[Any, ...]:
        if not local.begun:
            return (Subscribe(),)
        found: list[Event] = list(list_firings(self.fsm, local.party, self.silent))
        for source, seen in local.seen if self.tokens else ():
            if not seen.alive:
                found.append(Appeared(source, new=seen.began < 0))
            elif self.leaves:
                found.append(Disappeared(source))
        return tuple(found)

    def react(self, local: SampleReceiverLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if not local.begun and not isinstance(event, Subscribe):
            return Reaction(local)  # nobody has subscribed yet
        if isinstance(event, Ended):
            return self._judge_end(local, event, watch)
        if isinstance(event, GoesOn):
            return self._gone_on(local, event, watch)
        return self._step(self._informed(local, event), local, event, watch)

    def canonical(self, local: SampleReceiverLocal) -> SampleReceiverLocal:
        """Without the numbers of queries, and counts of what was dropped."""
        record, places = renumber_queries(local.party.record, self.sources, local.places)
        seen = tuple((source, replace(one, dropped=0) if one.dropped else one) for source, one in local.seen)
        return replace(local, party=replace(local.party, record=record), places=places, seen=seen)

    # -- what the judge learns before the step --------------------------------------------------------------------

    def _informed(self, local: SampleReceiverLocal, event: Event) -> SampleReceiverLocal:
        source = getattr(event, "source", "") or getattr(event, "key", "")
        if isinstance(event, HistoryTimeout):
            return self._history_over(local) if self._was_last(local) else replace(local, paused=True)
        if isinstance(event, HistoryRested):
            return replace(local, paused=False)
        if source not in self.sources:
            begins = isinstance(event, Subscribe)
            return replace(local, begun=True, history=local.history or (begins and self._asks))
        seen = replace(dict(local.seen)[source], late=0)
        if self._finds_no_place(local, event):
            return replace(local, turned=tuple(sorted({*local.turned, source})))
        match event:
            case Sample(_, first, last):
                seen = seen.observe_samples(self._count(first), self._count(first) + last - first, self.recovery)
            case Heartbeat(_, last):
                seen = seen.observe_heartbeat(self._count(last), self.recovery)
            case QueryTimeout():
                seen = seen.observe_timeout(self.recovery)
            case Overdue():
                seen = seen.observe_overdue(seen.missing)
            case Appeared(_, new):
                seen = replace(seen, alive=True, new=new)
            case Disappeared():
                seen = replace(seen, alive=False)
        return self._with(local, source, seen)

    def _finds_no_place(self, local: SampleReceiverLocal, event: Event) -> bool:
        """It is of a source of which nothing is known, and of as many as may be something is."""
        if not isinstance(event, Sample | Heartbeat | Appeared) or dict(local.seen)[event.source].is_kept:
            return False
        return sum(seen.is_kept for _, seen in local.seen) >= self.recovery.sources

    def _history_over(self, local: SampleReceiverLocal) -> SampleReceiverLocal:
        seen = tuple((source, replace(one, waits=False)) for source, one in local.seen)
        return replace(local, history=False, paused=False, seen=seen)

    def _was_last(self, local: SampleReceiverLocal) -> bool:
        return local.tries > self.recovery.retries

    def _judge_end(self, local: SampleReceiverLocal, event: Ended, watch: Watch | None) -> Reaction:
        if event.source == EVERY_SOURCE:
            informed = local
            if event.brought > 0 or (local.history and not local.paused and self._was_last(local)):
                informed = self._history_over(local)
            elif local.history and not local.paused:
                informed = replace(local, paused=True)
            return self._step(informed, local, QueryEnded(EVERY_SOURCE, local.tries, event.brought), watch)
        n, at = self._query(local, event)
        seen = replace(dict(local.seen)[event.source], late=0).observe_query_end(at, event.brought, self.recovery)
        informed = self._with(local, event.source, seen)
        brought = EVERYTHING if self.gives_up else event.brought
        return self._step(informed, local, QueryEnded(event.source, n, brought), watch)

    def _gone_on(self, local: SampleReceiverLocal, event: GoesOn, watch: Watch | None) -> Reaction:
        n = local.tries if event.source == EVERY_SOURCE else self._query(local, event)[0]
        return self._step(local, local, QueryGoesOn(event.source, n), watch)

    def _query(self, local: SampleReceiverLocal, event: Ended | GoesOn) -> tuple[int, int]:
        """The number of the query, and which of the places of its source it has."""
        place = self.sources.index(event.source)
        at = event.place - self._places * place
        return local.places[place][at], at

    @property
    def _places(self) -> int:
        return self.recovery.pacing.windows + 2

    # -- the step ---------------------------------------------------------------------------------------------------

    def _step(
        self, informed: SampleReceiverLocal, before: SampleReceiverLocal, event: Event, watch: Watch | None
    ) -> Reaction:
        party, effects = step_party(self.fsm, informed.party, event, self.name, watch)
        local = self._waiting(replace(informed, party=party))
        found: set[SampleViolation] = set()
        calls: list[Envelope] = []
        for effect in effects:
            match effect:
                case Tell(Deliver() | Missed() as told):
                    local, wrong = self._judge_tell(local, told)
                    found |= wrong
                case Ask(_, Query() as query):
                    local, wrong = self._judge_query(local, query, event, calls)
                    found |= wrong
        found |= self._unasked(before, event, effects)
        found |= self._mistimed(local, event, effects) | self._miscounted(before, local, event)
        found |= self._hurried(before, local, event, effects)
        found |= self._misplaced(before, local, event, effects)
        local, forgotten = self._judge_forgotten(local, before, event)
        found |= forgotten
        for source, seen in local.seen:
            if seen.has_hole and seen.next >= self.count:
                raise ValueError(f"{source} is waited for {seen.next}, and there are {self.count} numbers")
            found |= name_violations(seen.judge_step(self.recovery) + seen.judge_convicted(self.recovery))
        if set(local.party.timers) != self._timers(local):
            found.add(SampleViolation.TIMERS)
        broken = tuple(one for one in SampleViolation if one in local.broken or one in found)
        return Reaction(replace(local, broken=broken), (), tuple(calls))

    def _waiting(self, local: SampleReceiverLocal) -> SampleReceiverLocal:
        """A source that is met while the first query is open waits, until it holds too much."""
        seen = []
        for source, one in local.seen:
            waits = local.history and one.held_count <= self.recovery.history_limit
            seen.append((source, replace(one, waits=waits and (one.began < 0 or one.waits))))
        return replace(local, seen=tuple(seen))

    def _judge_tell(
        self, local: SampleReceiverLocal, told: Deliver | Missed
    ) -> tuple[SampleReceiverLocal, set[SampleViolation]]:
        first = self._count(wrap_number(told.first, self.width))
        last = first + told.last - told.first
        seen = dict(local.seen)[told.source]
        if isinstance(told, Deliver):
            after, broken = seen.observe_delivered(first, last)
        else:
            after, broken = seen.observe_missed(first, last, self.recovery)
        exists = last < self.count
        return self._with(local, told.source, after) if exists else local, name_violations(broken)

    def _judge_query(
        self, local: SampleReceiverLocal, query: Query, event: Event, calls: list[Envelope]
    ) -> tuple[SampleReceiverLocal, set[SampleViolation]]:
        if query.source == EVERY_SOURCE:
            calls.append(Envelope(self.name, QUERY, Asked(self._places * len(self.sources), query)))
            broken = judge_unwanted(local.history and isinstance(event, Subscribe | HistoryRested))
            broken += judge_first_query(query, self.history or History(), local.tries)
            return replace(local, tries=query.n), name_violations(broken)
        place = self.sources.index(query.source)
        seen = dict(local.seen)[query.source]
        first = self._count(wrap_number(query.first, self.width))
        last = first + query.last - query.first if query.has_end else first - 1
        last = min(last, self.count - 1) if query.has_end or query.newest else self.count - 1
        numbers = list(local.places[place])
        taken = {n for one in seen.open for n, _ in one.sent}
        at = min(
            range(self._places), key=lambda one: (one in taken, numbers[one] if one in taken else numbers[one] != 0)
        )
        numbers[at] = query.n
        calls.append(Envelope(self.name, QUERY, Asked(self._places * place + at, query)))
        places = (*local.places[:place], tuple(numbers), *local.places[place + 1 :])
        again = isinstance(event, QueryTimeout) or (isinstance(event, QueryEnded) and event.brought == PARTLY)
        asked = AskedNumbers(at, first, last, query.newest, isinstance(event, PeriodOver), again)
        seen, broken = seen.observe_query(asked, self.recovery)
        return self._with(replace(local, places=places), query.source, seen), name_violations(broken)

    def _unasked(self, before: SampleReceiverLocal, event: Event, effects: Effects) -> set[SampleViolation]:
        """Who is met by a token, and all of whose samples are ours, is asked."""
        if not isinstance(event, Appeared) or before.history or self._finds_no_place(before, event):
            return set()
        asked = any(isinstance(one, Ask) for one in effects)
        return name_violations(dict(before.seen)[event.source].judge_token(event.new, asked, self.recovery))

    # -- what else the judge looks at -------------------------------------------------------------------------------

    def _mistimed(self, local: SampleReceiverLocal, event: Event, effects: Effects) -> set[SampleViolation]:
        """The deadlines of timers: they run from now on, which is 0.  After an end nobody rests where all that is
        missing was not asked for yet."""
        recovery, pacing = self.recovery, self.recovery.pacing
        wanted = {"query": pacing.timeout_ms, "history": pacing.history_ms, "period": recovery.period_ms,
                  "retention": recovery.retention_ms, "overdue": recovery.deadline_ms,
                  "pause": min(pacing.backoff_ms << max(local.tries - 1, 0), pacing.backoff_max_ms)}  # fmt: skip
        waits = isinstance(event, QueryGoesOn) and event.source == EVERY_SOURCE and local.history and not local.paused
        if waits and not any(isinstance(effect, SetTimer) for effect in effects):
            return {SampleViolation.TIMING}
        for effect in effects:
            if isinstance(effect, SetTimer):
                due = wanted.get(effect.timer)
                if effect.timer == "rest":
                    seen = dict(local.seen)[effect.key]
                    if isinstance(event, QueryEnded) and not seen.attempts:
                        return {SampleViolation.TIMING}
                    due = seen.pause_ms(recovery)
                if effect.deadline_ns != (due or 0) * MS:
                    return {SampleViolation.TIMING}
        return set()

    def _hurried(
        self, before: SampleReceiverLocal, local: SampleReceiverLocal, event: Event, effects: Effects
    ) -> set[SampleViolation]:
        """Whether somebody asks at once, and not after a pause, where one try more was in vain."""
        if not isinstance(event, QueryEnded) or event.source == EVERY_SOURCE:
            return set()
        was, now = (dict(one.seen)[event.source].attempts for one in (before, local))
        hurried = now > was and any(isinstance(one, Ask) for one in effects)
        return {SampleViolation.TIMING} if hurried else set()

    def _timers(self, local: SampleReceiverLocal) -> set[tuple[str, str]]:
        """Those that should run."""
        wanted = {("pause" if local.paused else "history", "")} if local.history else set()
        for source, seen in local.seen:
            if seen.began < 0 or seen.waits:
                continue
            wanted.add(("retention", source))
            if seen.open:
                wanted.add(("query", source))
            elif seen.is_missing_any:
                wanted.add(("rest", source))
            if seen.is_missing_any:
                wanted.add(("overdue", source))
            elif not seen.open and self.recovery.period_ms:
                wanted.add(("period", source))
        return wanted

    def _miscounted(
        self, before: SampleReceiverLocal, local: SampleReceiverLocal, event: Event
    ) -> set[SampleViolation]:
        """Whether what was not new was counted."""
        if not isinstance(event, Sample) or self._finds_no_place(before, event):
            return set()
        counted = local.party.record.sources.get(event.source)
        dropped = 0 if counted is None else counted.dropped
        return name_violations(dict(local.seen)[event.source].judge_count(dropped))

    def _misplaced(
        self, before: SampleReceiverLocal, local: SampleReceiverLocal, event: Event, effects: Effects
    ) -> set[SampleViolation]:
        """Whether those and only those were turned away for whom there is no place, counted, and told of samples."""
        seen = ObservedStrangers()
        if self._finds_no_place(before, event):
            seen = seen.observe_stranger(event, self.width)
        broken: Broken = ()
        for one in effects:
            if isinstance(one, Tell) and isinstance(one.event, TurnedAway):
                seen, wrong = seen.observe_told(one.event)
                broken += wrong
        now, was = (one.party.record.turned_away for one in (local, before))
        broken += seen.judge_silence() + seen.judge_count(now - was)
        if not isinstance(event, RetentionOver | Disappeared):  # whether it should be kept is judged elsewhere
            kept = {source for source in self.sources if source in local.party.record.sources}
            known = {source for source, one in local.seen if one.is_kept}
            broken += judge_places(len(kept), len(known), kept ^ known)
        return name_violations(broken, COUNT_OF_PLACES)

    def _judge_forgotten(
        self, local: SampleReceiverLocal, before: SampleReceiverLocal, event: Event
    ) -> tuple[SampleReceiverLocal, set[SampleViolation]]:  # fmt: skip
        """Sources that are forgotten, and whether they should be."""
        found: set[SampleViolation] = set()
        for source, seen in local.seen:
            had, has = (source in one.party.record.sources for one in (before, local))
            retained = isinstance(event, RetentionOver) and event.key == source
            gone = isinstance(event, Disappeared) and event.source == source and seen.began < 0
            if had:
                found |= name_violations(seen.judge_forgotten(gone or (retained and not seen.heard), kept=has))
            if had and not has:
                local = self._with(local, source, ObservedSource(waits=local.history))
            elif retained:
                local = self._with(local, source, replace(seen, heard=False))
        return local, found

    # -- reading it ---------------------------------------------------------------------------------------------

    def describe(self, local: SampleReceiverLocal) -> str:
        words = [
            f"{source} next {seen.next} of {seen.top}" + (", missed some" if seen.missed else "")
            for source, seen in local.seen
        ]
        timers = list(timer_words(local.party))
        words += [f"timers {', '.join(timers)}"] if timers else []
        return "; ".join([*words, *(one.value for one in local.broken)])

    def bounds(self) -> dict[str, str]:
        one = self.recovery
        return {
            "numbers": str(self.count),
            "retries": str(one.retries),
            "numbers in a window": str(one.pacing.window),
            "windows at a time": str(one.pacing.windows),
            "pending": str(one.pending),
            "sources that are kept": str(one.sources),
            "replies": "every one comes" if one.reliable else "may be lost",
        }

    def is_broken(self, how: SampleViolation) -> View:
        """Whether this was broken."""
        return View(SUBSCRIBER, 2, lambda local: int(how in local.broken))

    def has_missed(self) -> View:
        """Whether anything was reported missed."""
        return View(SUBSCRIBER, 2, lambda local: int(any(seen.missed for _, seen in local.seen)))

    def has_turned_away(self) -> View:
        """Whether a source was turned away."""
        return View(SUBSCRIBER, 2, lambda local: int(bool(local.turned)))

    def has_taken_after_all(self) -> View:
        """Whether a source is known that was turned away before."""

        def read(local: SampleReceiverLocal) -> int:
            return int(any(seen.is_kept for source, seen in local.seen if source in local.turned))

        return View(SUBSCRIBER, 2, read)

    def has_hole(self, *sources: str) -> View:
        """Whether something is missing (of these sources; none: of any), or has come and waits."""

        def read(local: SampleReceiverLocal) -> int:
            return int(any(seen.has_hole for source, seen in local.seen if source in (sources or self.sources)))

        return View(SUBSCRIBER, 2, read)

    def is_settled(self) -> View:
        """How many numbers of its first source are delivered or reported."""
        return View(SUBSCRIBER, self.count + 1, lambda local: local.seen[0][1].next)

    def has_recovered(self) -> View:
        """Whether everything of some source was delivered."""

        def read(local: SampleReceiverLocal) -> int:
            return int(any(one.next == self.count and not one.missed and one.began == 0 for _, one in local.seen))

        return View(SUBSCRIBER, 2, read)

    def has_doubted(self) -> View:
        """Whether a number was too far ahead."""
        return View(SUBSCRIBER, 2, lambda local: int(any(seen.doubt >= 0 for _, seen in local.seen)))

    def has_asked_twice(self) -> View:
        """Whether the first query was sent again."""
        return View(SUBSCRIBER, 2, lambda local: int(local.tries > 1))

    def is_asking(self) -> View:
        """Whether a query is waited for."""
        return View(SUBSCRIBER, 2, lambda local: int(any(seen.open != () for _, seen in local.seen)))

    def _count(self, sn: int) -> int:
        """Which number of the system it is."""
        return sn - self.begin if self.width == 64 else wrap_number(sn - self.begin, self.width)

    @staticmethod
    def _with(local: SampleReceiverLocal, source: str, seen: ObservedSource) -> SampleReceiverLocal:
        return replace(local, seen=tuple((one, seen if one == source else old) for one, old in local.seen))
