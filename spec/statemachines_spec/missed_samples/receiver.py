"""Receiver: a subscriber as a component, and the judge of all that it does.

Queries go to the fabric with a place in place of their number: the fabric needs no numbers, and states that differ in
them alone are one.  A query takes a place whose query is not waited for any more.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Effects, Event, Fsm, SetTimer, Tell
from statemachines.missed_samples.message import (
    EVERY_SOURCE,
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
from statemachines.missed_samples.recovery import MS, Recovery
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.missed_samples.source_record import (
    Appeared,
    Disappeared,
    PeriodOver,
    QueryTimeout,
    RetentionOver,
)
from statemachines.missed_samples.subscriber_record import (
    History,
    HistoryRested,
    HistoryTimeout,
    Subscribe,
    SubscriberRecord,
)
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import Party, timer_words
from statemachines_spec.explorer.property import View
from statemachines_spec.missed_samples.fabric import SUBSCRIBER, Asked, Ended, GoesOn
from statemachines_spec.missed_samples.rules import SHIPPED, Rules
from statemachines_spec.missed_samples.truth import (
    SampleViolation,
    Truth,
    backoff_ms,
    bits,
    came,
    faults_after,
    is_doubted,
    no_query,
    note_delivered,
    note_existing,
    note_missed,
    query_over,
    query_sent,
    settle_truth,
    silence,
)


class ReceiverLocal(msgspec.Struct, frozen=True, gc=False):
    """`truths` by source; `places`: the numbers of the queries in the places of each source; `begun`; `history`: the
    first query is open, or (`paused`) sent again soon, after `tries`; `turned`: the sources that were turned away, once
    at least."""

    party: Party
    truths: tuple[tuple[str, Truth], ...]
    places: tuple[tuple[int, ...], ...]
    begun: bool = False
    history: bool = False
    paused: bool = False
    tries: int = 0
    turned: tuple[str, ...] = ()
    broken: tuple[SampleViolation, ...] = ()


class Receiver(Actor):
    """`count`: so many numbers there are, from `begin` on the wire; `silent` timers never fire; `tokens`: whether
    sources may appear (and, where `leaves`, disappear); `rules`: those of the shipped machine, or the source's own."""

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
        rules: Rules = SHIPPED,
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
        self.rules = rules

    @property
    def _asks(self) -> bool:
        """It begins with a query."""
        return self.history is not None

    # -- the component ------------------------------------------------------------------------------------------

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return self.rules.machines

    def initial(self) -> ReceiverLocal:
        truth = Truth(tries=(0,) * self.count)
        record = SubscriberRecord(self.recovery, self.history, self.width)
        return ReceiverLocal(
            self.rules.begin(record),
            tuple((source, truth) for source in self.sources),
            ((0,) * (self.recovery.windows + 1),) * len(self.sources),
        )

    def inputs(self, local: ReceiverLocal) -> tuple[Any, ...]:
        if not local.begun:
            return (Subscribe(),)
        found: list[Event] = list(self.rules.firings(local.party, self.silent))
        for source, truth in local.truths if self.tokens else ():
            if not truth.alive:
                found.append(Appeared(source, new=truth.began < 0))
            elif self.leaves:
                found.append(Disappeared(source))
        return tuple(found)

    def react(self, local: ReceiverLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if not local.begun and not isinstance(event, Subscribe):
            return Reaction(local)  # nobody has subscribed yet
        if isinstance(event, Ended):
            return self._judge_end(local, event, watch)
        if isinstance(event, GoesOn):
            return self._gone_on(local, event, watch)
        return self._step(self._informed(local, event), local, event, watch)

    def canonical(self, local: ReceiverLocal) -> ReceiverLocal:
        """Without the numbers of queries, counts of what was dropped, and what is settled."""
        record, places = self.rules.renumber_queries(local.party.record, self.sources, local.places)
        truths = tuple((source, settle_truth(truth)) for source, truth in local.truths)
        return replace(local, party=replace(local.party, record=record), places=places, truths=truths)

    # -- what the judge learns before the step --------------------------------------------------------------------

    def _informed(self, local: ReceiverLocal, event: Event) -> ReceiverLocal:
        source = getattr(event, "source", "") or getattr(event, "key", "")
        if isinstance(event, HistoryTimeout):
            return self._history_over(local) if self._was_last(local) else replace(local, paused=True)
        if isinstance(event, HistoryRested):
            return replace(local, paused=False)
        if source not in self.sources:
            begins = isinstance(event, Subscribe)
            return replace(local, begun=True, history=local.history or (begins and self._asks))
        truth = dict(local.truths)[source]
        if self._finds_no_place(local, event):
            return replace(local, turned=tuple(sorted({*local.turned, source})))
        match event:
            case Sample(_, first, last):
                truth, _ = came(truth, self._count(first), self._count(first) + last - first, self.recovery)
            case Heartbeat(_, last) if is_doubted(truth, self._count(last), 0, self.recovery):
                truth = replace(truth, doubt=self._count(last), heard=True)
            case Heartbeat(_, last):
                truth = note_existing(truth, self._count(last) + 1, self._count(last), self.recovery)
            case QueryTimeout():
                truth = silence(truth, self.recovery)
            case Appeared(_, new):
                truth = replace(truth, alive=True, new=new)
            case Disappeared():
                truth = replace(truth, alive=False)
        return self._with(local, source, truth)

    def _finds_no_place(self, local: ReceiverLocal, event: Event) -> bool:
        """It is of a source of which nothing is known, and of as many as may be something is."""
        if not isinstance(event, Sample | Heartbeat | Appeared) or dict(local.truths)[event.source].is_kept():
            return False
        return sum(truth.is_kept() for _, truth in local.truths) >= self.recovery.sources

    def _history_over(self, local: ReceiverLocal) -> ReceiverLocal:
        truths = tuple((source, replace(truth, waits=False)) for source, truth in local.truths)
        return replace(local, history=False, paused=False, truths=truths)

    def _was_last(self, local: ReceiverLocal) -> bool:
        return local.tries > self.recovery.retries

    def _judge_end(self, local: ReceiverLocal, event: Ended, watch: Watch | None) -> Reaction:
        if event.source == EVERY_SOURCE:
            informed = local
            if event.brought or (local.history and not local.paused and self._was_last(local)):
                informed = self._history_over(local)
            elif local.history and not local.paused:
                informed = replace(local, paused=True)
            return self._step(informed, local, QueryEnded(EVERY_SOURCE, local.tries, event.brought), watch)
        n, at = self._query(local, event)
        truth = dict(local.truths)[event.source]
        informed = local
        if any(one.place == at for one in truth.open):
            informed = self._with(local, event.source, query_over(truth, at, event.brought, self.recovery))
        return self._step(informed, local, QueryEnded(event.source, n, event.brought), watch)

    def _gone_on(self, local: ReceiverLocal, event: GoesOn, watch: Watch | None) -> Reaction:
        n = local.tries if event.source == EVERY_SOURCE else self._query(local, event)[0]
        return self._step(local, local, QueryGoesOn(event.source, n), watch)

    def _query(self, local: ReceiverLocal, event: Ended | GoesOn) -> tuple[int, int]:
        """The number of the query, and which of the places of its source it has."""
        place = self.sources.index(event.source)
        at = event.place - self._places * place
        return local.places[place][at], at

    @property
    def _places(self) -> int:
        return self.recovery.windows + 1

    # -- the step ---------------------------------------------------------------------------------------------------

    def _step(self, informed: ReceiverLocal, before: ReceiverLocal, event: Event, watch: Watch | None) -> Reaction:
        party, effects = self.rules.step(informed.party, event, self.name, watch)
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
        found |= self._misplaced(before, local, event, effects)
        local, forgotten = self._judge_forgotten(local, before, event)
        found |= forgotten
        if isinstance(event, Sample):
            local = self._with(local, event.source, no_query(dict(local.truths)[event.source]))
        for _, truth in local.truths:
            found |= faults_after(truth, self.recovery)
        if self.rules.counts and set(local.party.timers) != self._timers(local):
            found.add(SampleViolation.TIMERS)
        broken = tuple(one for one in SampleViolation if one in local.broken or one in found)
        return Reaction(replace(local, broken=broken), (), tuple(calls))

    def _waiting(self, local: ReceiverLocal) -> ReceiverLocal:
        """A source that is met while the first query is open waits, until it holds too much."""
        truths = []
        for source, truth in local.truths:
            waits = local.history and truth.count_held() <= self.recovery.history_limit
            truths.append((source, replace(truth, waits=waits if truth.began < 0 or truth.waits else False)))
        return replace(local, truths=tuple(truths))

    def _judge_tell(self, local: ReceiverLocal, told: Deliver | Missed) -> tuple[ReceiverLocal, set[SampleViolation]]:
        first = self._count(wrap_number(told.first, self.width))
        last = first + told.last - told.first
        if last >= self.count:
            return local, {SampleViolation.INVENTED}
        truth = dict(local.truths)[told.source]
        if isinstance(told, Deliver):
            truth, wrong = note_delivered(truth, first, last)
        else:
            truth, wrong = note_missed(truth, first, last, self.recovery)
        return self._with(local, told.source, truth), wrong

    def _judge_query(
        self, local: ReceiverLocal, query: Query, event: Event, calls: list[Envelope]
    ) -> tuple[ReceiverLocal, set[SampleViolation]]:
        if query.source == EVERY_SOURCE:
            calls.append(Envelope(self.name, QUERY, Asked(self._places * len(self.sources), query)))
            wanted = self.history or History()
            right = self._asks and (query.newest, query.age_ms) == (wanted.newest, wanted.age_ms)
            right = right and isinstance(event, Subscribe | HistoryRested) and query.n == local.tries + 1
            return replace(local, tries=query.n), set() if right else {SampleViolation.ASKED}
        place = self.sources.index(query.source)
        truth = dict(local.truths)[query.source]
        looks, found = bool(query.newest) and not query.has_end, set()
        missing = truth.missing()
        asked = sum(one.range for one in truth.open)
        lowest = (missing & -missing).bit_length() - 1 if missing else truth.next
        first = self._count(wrap_number(query.first, self.width))
        last = first + query.last - query.first if query.has_end else self.count - 1
        met = looks and truth.began < 0 and truth.alive and (truth.new or self.recovery.past) and not truth.waits
        if not met:
            if len(truth.open) >= self.recovery.windows or truth.waits:
                found.add(SampleViolation.ASKED)
            if not missing and not isinstance(event, PeriodOver):
                found.add(SampleViolation.QUIET)
            if first != lowest if looks or not truth.open else not (missing & ~asked) >> first & 1:
                found.add(SampleViolation.ASKED)
        numbers = list(local.places[place])
        taken = {one.place for one in truth.open}
        at = min((one for one in range(self._places) if one not in taken), key=lambda one: (numbers[one] != 0, one))
        numbers[at] = query.n
        calls.append(Envelope(self.name, QUERY, Asked(self._places * place + at, query)))
        places = (*local.places[:place], tuple(numbers), *local.places[place + 1 :])
        if not met:
            truth = query_sent(truth, at, first, first - 1 if looks else min(last, self.count - 1), query.newest)
        return self._with(replace(local, places=places), query.source, truth), found

    def _unasked(self, before: ReceiverLocal, event: Event, effects: Effects) -> set[SampleViolation]:
        """Who is met by a token, and all of whose samples are ours, is asked."""
        if not isinstance(event, Appeared) or before.history or self._finds_no_place(before, event):
            return set()
        truth = dict(before.truths)[event.source]
        met = truth.began < 0 and not truth.alive and (event.new or self.recovery.past)
        return {SampleViolation.ASKED} if met and not any(isinstance(one, Ask) for one in effects) else set()

    # -- what else the judge looks at -------------------------------------------------------------------------------

    def _mistimed(self, local: ReceiverLocal, event: Event, effects: Effects) -> set[SampleViolation]:
        """The deadlines of timers: they run from now on, which is 0.  After an end nobody rests where all that is
        missing was not asked for yet."""
        recovery = self.recovery
        wanted = {"query": recovery.timeout_ms, "history": recovery.timeout_ms, "period": recovery.period_ms,
                  "retention": recovery.retention_ms,
                  "pause": min(recovery.backoff_ms << max(local.tries - 1, 0), recovery.backoff_max_ms)}  # fmt: skip
        waits = isinstance(event, QueryGoesOn) and self._waits_for(local, event)
        if waits and not any(isinstance(effect, SetTimer) for effect in effects):
            return {SampleViolation.TIMING}
        for effect in effects:
            if isinstance(effect, SetTimer):
                due = wanted.get(effect.timer)
                if effect.timer == "rest":
                    truth = dict(local.truths)[effect.key]
                    if isinstance(event, QueryEnded) and not truth.tries[truth.next]:
                        return {SampleViolation.TIMING}
                    due = backoff_ms(truth, recovery)
                if effect.deadline_ns != (due or 0) * MS:
                    return {SampleViolation.TIMING}
        return set()

    def _waits_for(self, local: ReceiverLocal, event: QueryGoesOn) -> bool:
        """The query is not over for the subscriber either."""
        if event.source == EVERY_SOURCE:
            return local.history and not local.paused
        numbers = local.places[self.sources.index(event.source)]
        return any(numbers[one.place] == event.n for one in dict(local.truths)[event.source].open)

    def _timers(self, local: ReceiverLocal) -> set[tuple[str, str]]:
        """Those that should run."""
        wanted = {("pause" if local.paused else "history", "")} if local.history else set()
        for source, truth in local.truths:
            if truth.began < 0 or truth.waits:
                continue
            wanted.add(("retention", source))
            if truth.open:
                wanted.add(("query", source))
            elif truth.missing():
                wanted.add(("rest", source))
            elif self.recovery.period_ms:
                wanted.add(("period", source))
        return wanted

    def _miscounted(self, before: ReceiverLocal, local: ReceiverLocal, event: Event) -> set[SampleViolation]:
        """Whether what was not new was counted."""
        if not isinstance(event, Sample) or not self.rules.counts or self._finds_no_place(before, event):
            return set()
        truth = dict(before.truths)[event.source]
        first = self._count(event.first)
        _, new = came(truth, first, first + event.last - event.first, self.recovery)
        was = self.rules.count_dropped(before.party.record, event.source)
        now = self.rules.count_dropped(local.party.record, event.source)
        return set() if now - was == event.last - event.first + 1 - new else {SampleViolation.COUNT}

    def _misplaced(
        self, before: ReceiverLocal, local: ReceiverLocal, event: Event, effects: Effects
    ) -> set[SampleViolation]:
        """Whether those and only those were turned away for whom there is no place, counted, and told of samples."""
        told = [one.event for one in effects if isinstance(one, Tell) and isinstance(one.event, TurnedAway)]
        wanted, count = [], 0
        if self._finds_no_place(before, event):
            count = event.last - event.first + 1 if isinstance(event, Sample) else 1
            if isinstance(event, Sample):
                first = event.first + (0 if self.width == 64 else 1 << self.width)
                wanted = [TurnedAway(event.source, first, first + count - 1)]
        if not self.rules.counts:
            return set()
        counted = self.rules.count_turned_away(local.party.record) - self.rules.count_turned_away(before.party.record)
        kept = {source for source, truth in local.truths if self.rules.keeps(local.party.record, source)}
        known = {source for source, truth in local.truths if truth.is_kept()}
        gone = isinstance(event, RetentionOver | Disappeared)  # whether it should be is judged elsewhere
        return set() if (told, counted) == (wanted, count) and (gone or kept == known) else {SampleViolation.PLACES}

    def _judge_forgotten(
        self, local: ReceiverLocal, before: ReceiverLocal, event: Event
    ) -> tuple[ReceiverLocal, set[SampleViolation]]:  # fmt: skip
        """Sources that are forgotten, and whether they should be."""
        found: set[SampleViolation] = set()
        for source, truth in local.truths:
            had, has = (self.rules.keeps(one.party.record, source) for one in (before, local))
            silent = isinstance(event, RetentionOver) and event.key == source and not truth.heard and not truth.alive
            goes = had and (
                (silent and not truth.missing())
                or (isinstance(event, Disappeared) and event.source == source and truth.began < 0)
            )
            if goes is has and had:
                found.add(SampleViolation.FORGOTTEN)
            if had and not has:
                local = self._with(local, source, Truth(tries=(0,) * self.count, waits=local.history))
            elif isinstance(event, RetentionOver) and event.key == source:
                local = self._with(local, source, replace(truth, heard=False))
        return local, found

    # -- reading it ---------------------------------------------------------------------------------------------

    def describe(self, local: ReceiverLocal) -> str:
        words = [
            f"{source} next {truth.next} of {truth.top}" + (f", missed {truth.missed:b}" if truth.missed else "")
            for source, truth in local.truths
        ]
        timers = list(timer_words(local.party))
        words += [f"timers {', '.join(timers)}"] if timers else []
        return "; ".join([*words, *(one.value for one in local.broken)])

    def bounds(self) -> dict[str, str]:
        one = self.recovery
        return {
            "numbers": str(self.count),
            "retries": str(one.retries),
            "numbers in a window": str(one.window),
            "windows at a time": str(one.windows),
            "pending": str(one.pending),
            "sources that are kept": str(one.sources),
            "replies": "every one comes" if one.reliable else "may be lost",
        }

    def is_broken(self, how: SampleViolation) -> View:
        """Whether this was broken."""
        return View(SUBSCRIBER, 2, lambda local: int(how in local.broken))

    def has_missed(self) -> View:
        """Whether anything was reported missed."""
        return View(SUBSCRIBER, 2, lambda local: int(any(truth.missed for _, truth in local.truths)))

    def has_turned_away(self) -> View:
        """Whether a source was turned away."""
        return View(SUBSCRIBER, 2, lambda local: int(bool(local.turned)))

    def has_taken_after_all(self) -> View:
        """Whether a source is known that was turned away before."""

        def read(local: ReceiverLocal) -> int:
            return int(any(truth.is_kept() for source, truth in local.truths if source in local.turned))

        return View(SUBSCRIBER, 2, read)

    def has_hole(self, *sources: str) -> View:
        """Whether something is missing (of these sources; none: of any), or has come and waits."""

        def read(local: ReceiverLocal) -> int:
            return int(any(truth.next < truth.top for source, truth in local.truths
                           if source in (sources or self.sources)))  # fmt: skip

        return View(SUBSCRIBER, 2, read)

    def is_settled(self) -> View:
        """How many numbers of its first source are delivered or reported."""
        return View(SUBSCRIBER, self.count + 1, lambda local: local.truths[0][1].next)

    def has_recovered(self) -> View:
        """Whether everything of some source was delivered."""
        full = bits(0, self.count - 1)
        return View(SUBSCRIBER, 2, lambda local: int(any(t.next == self.count and not t.missed & full and t.began == 0
                                                         for _, t in local.truths)))  # fmt: skip

    def has_doubted(self) -> View:
        """Whether a number was too far ahead."""
        return View(SUBSCRIBER, 2, lambda local: int(any(truth.doubt >= 0 for _, truth in local.truths)))

    def has_asked_twice(self) -> View:
        """Whether the first query was sent again."""
        return View(SUBSCRIBER, 2, lambda local: int(local.tries > 1))

    def is_asking(self) -> View:
        """Whether a query is waited for."""
        return View(SUBSCRIBER, 2, lambda local: int(any(truth.open != () for _, truth in local.truths)))

    def _count(self, sn: int) -> int:
        """Which number of the system it is."""
        return sn - self.begin if self.width == 64 else wrap_number(sn - self.begin, self.width)

    @staticmethod
    def _with(local: ReceiverLocal, source: str, truth: Truth) -> ReceiverLocal:
        return replace(local, truths=tuple((one, truth if one == source else old) for one, old in local.truths))
