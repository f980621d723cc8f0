"""Bugs: mistakes that can be planted in the machines of missed-samples recovery; each is found by exploring."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import STAY, Ask, Event, Fsm, Map, Row, Send, Tell
from statemachines.kernel.row import AnyRow, Delegate
from statemachines.missed_samples import (
    cache,
    publisher,
    sample_queue,
    source_actions,
    source_windows,
    subscriber_actions,
)
from statemachines.missed_samples.message import QUERY, Deliver, Heartbeat, Missed, Query, Sample
from statemachines.missed_samples.publisher import PUBLISHER, HeartbeatDue
from statemachines.missed_samples.sample_queue import SampleQueue
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_record import (
    LIVE,
    PeriodOver,
    QueryWindow,
    SourceRecord,
    with_asking,
)
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import PAUSED, SUBSCRIBED, HistoryTimeout
from statemachines_spec.bug import Apply, Bug, change_rows, combine, redeclare, replace_call
from statemachines_spec.bug import wrap_call as around


def on(fsm: Fsm[Any], event: type[Event], source: Any, **what: Any) -> Apply:
    """The rows of this event in `source` have another action `do`, guard `when` or destination `to`."""

    def changed(one: AnyRow) -> list[AnyRow]:
        if not isinstance(one, Row) or one.on is not event or source not in fsm._sources(one.source):
            return [one]
        do, when, to = what.get("do", one.do), what.get("when", one.when), what.get("to", one.to)
        return [Row(one.on, one.source, to, do, when, one.clause)]

    return lambda stack: redeclare(stack, fsm, changed)


# -- what is done instead -------------------------------------------------------------------------------------------


def always(record: Any, event: Event) -> bool:
    return True


def never(record: Any, event: Event) -> bool:
    return False


def take_without_asking(record: Any, event: Any, now_ns: int) -> Any:
    return source_actions.settle(source_actions.receive_samples(record, event))


def keep_still(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def ask_from_the_top(record: SourceRecord, window: QueryWindow) -> Any:
    n = window.sent[-1].n
    return Ask(QUERY, Query(record.source, n, record.top, window.newest, 0, record.top + window.last))


def ask_by_the_same_number(open_windows: Any) -> Any:
    def changed(record: SourceRecord, now_ns: int) -> Any:
        after, effects = open_windows(record, now_ns)
        windows = tuple(replace(one, sent=(replace(one.sent[-1], n=1),)) for one in after.windows)
        asked = tuple(Ask(QUERY, replace(one.request, n=1)) for one in effects)
        return with_asking(after, windows=windows), asked

    return changed


def answer_convicts_all(ended: Any) -> Any:
    """What was asked for is convicted, whatever the answer reached."""

    return lambda record, window, sent, brought: ended(record, window, sent, 1 << 20 if brought else 0)


def every_end_is_good(ended: Any) -> Any:
    return lambda record, window, sent, brought: ended(record, window, sent, brought or 1 << 20)


def no_end_is_good(ended: Any) -> Any:
    return lambda record, window, sent, brought: ended(record, window, sent, 0)


def as_if_reliable(ended: Any) -> Any:
    def changed(record: SourceRecord, *rest: Any) -> Any:
        return ended(replace(record, recovery=replace(record.recovery, reliable=True)), *rest)

    return changed


def part_is_nothing(ended: Any) -> Any:
    """What came in part counts as if nobody had it."""
    return lambda record, event, now_ns: ended(record, replace(event, brought=max(event.brought, 0)), now_ns)


def part_is_whole(ended: Any) -> Any:
    return lambda record, event, now_ns: ended(record, replace(event, brought=abs(event.brought)), now_ns)


def with_recovery(**given: Any) -> Any:
    """As if the settings were these."""

    def around_it(function: Any) -> Any:
        def changed(record: SourceRecord, *rest: Any, **named: Any) -> Any:
            recovery = record.recovery
            values = {key: value(recovery) if callable(value) else value for key, value in given.items()}
            done = function(replace(record, recovery=replace(recovery, **values)), *rest, **named)
            if isinstance(done, tuple):
                return replace(done[0], recovery=recovery), *done[1:]
            return replace(done, recovery=recovery)

        return changed

    return around_it


def progress_is_nothing(record: SourceRecord, first: int, last: int) -> Any:
    """What a query has brought is not noted."""
    return record


def end_history_at_once(one: AnyRow) -> list[AnyRow]:
    """The first query is sent once."""
    if isinstance(one, Row) and one.clause == "MS-72" and one.to is PAUSED:
        return [Row(one.on, one.source, SUBSCRIBED, Delegate(subscriber_actions.close_history), one.when, one.clause)]
    return [one]


def one_window_more(windows_to_open: Any) -> Any:
    def changed(record: SourceRecord, now_ns: int) -> Any:
        pacing = record.recovery.pacing
        more = replace(record.recovery, pacing=replace(pacing, windows=pacing.windows + 1))
        return windows_to_open(replace(record, recovery=more), now_ns)

    return changed


def windows_that_meet(windows_to_open: Any) -> Any:
    def changed(record: SourceRecord, now_ns: int) -> Any:
        opened = windows_to_open(record, now_ns)
        return [replace(one, first=max(one.first - 1, record.expected)) for one in opened]

    return changed


def as_if_whole(ended: Any) -> Any:
    return lambda record, one, sent, brought: ended(record, replace(one, newest=0), sent, brought)


def believe_at_once(record: Any, event: Any, now_ns: int) -> Any:
    """It is delivered, and what was before it is given up."""
    after = event.last + 1
    told = (Tell(Missed(record.source, record.expected, after - 2)), Tell(Deliver(record.source, after - 1, after - 1)))
    return replace(record, expected=after, top=after, held=(), held_count=0), told


def give_up_at_once(record: Any, event: Any, now_ns: int) -> Any:
    """Nobody has answered, so nobody has it."""
    return source_actions.live(*source_actions.settle(record, record.top), now_ns)


def reach_far(ask_for: Any) -> Any:
    def changed(record: SourceRecord, window: QueryWindow) -> Any:
        asked = ask_for(record, window)
        return replace(asked, request=replace(asked.request, last=asked.request.last + 1))

    return changed


def hear_the_highest(record: Any, event: Any) -> Any:
    return source_actions.extend_known(record, event.last + 1, event.last)


def count_ever(count_failure: Any) -> Any:
    """What was counted for another number counts on."""
    return lambda record, top: count_failure(with_asking(record, front=record.expected), top)


def only_the_next(arrived: Any) -> Any:
    """What is ahead is dropped."""

    def changed(record: Any, event: Any) -> Any:
        after = arrived(record, event)
        return (
            after if event.first <= after.expected else replace(after, held=record.held, held_count=record.held_count)
        )

    return changed


def without_missed(settle: Any) -> Any:
    def changed(record: Any, below: int) -> Any:
        record, effects = settle(record, below)
        return record, tuple(one for one in effects if not isinstance(one.event, Missed))

    return changed


def miss_twice(settle: Any) -> Any:
    def changed(record: Any, below: int) -> Any:
        record, effects = settle(record, below)
        return record, tuple(one for told in effects for one in (told,) * (1 + isinstance(told.event, Missed)))

    return changed


def one_more_below(settle: Any) -> Any:
    return lambda record, below: settle(record, below + 1)


def deliver_again(record: Any, event: Any, now_ns: int) -> Any:
    record, effects = source_actions.take(record, event, now_ns)
    return record, effects or (Tell(Deliver(record.source, event.first, event.last)),)


def remove_bound(record: Any, below: int = 0) -> Any:
    return source_actions.settle_below(record, below)


def one_more_held(record: Any, below: int = 0) -> Any:
    record, effects = source_actions.settle_below(record, below)
    if record.held_count > record.recovery.pending + 1:
        record, more = source_actions.settle_below(record, source_actions.first_to_keep(record))
        effects = (*effects, *more)
    return record, effects


def give_up_all(record: Any) -> int:
    return int(record.top)


def was_heard_only(record: Any, event: Any) -> bool:
    return bool(record.heard)


def retain_as_heard(record: Any, event: Any, now_ns: int) -> Any:
    return record, source_actions.retain(record, event, now_ns)[1]


def appear_as_before(record: Any, event: Any, now_ns: int) -> Any:
    return replace(record, alive=True), ()


def disappear_alive(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def live_without_period(live: Any) -> Any:
    return lambda record, effects, now_ns: (live(record, effects, now_ns)[0], effects)


def not_in_history(source_of: Any) -> Any:
    return lambda record, source: replace(source_of(record, source), history=False)


def from_here_on(source_of: Any) -> Any:
    """Sources that are met have the origin of the wire."""
    return lambda record, source: replace(source_of(record, source), origin=0)


def end_for_the_first(record: Any, event: Any, now_ns: int) -> Any:
    first = min(record.sources)
    return subscriber_actions.step_source(record, record.sources[first], replace(event, source=first), now_ns)


def close_nobody(record: Any, event: Any, now_ns: int) -> Any:
    return record, (), ()


def keep_gone(record: Any, before: Any, event: Any, now_ns: int) -> Any:
    after, effects, seen = SOURCE.child_step(before, event, now_ns)
    return replace(record, sources=record.sources.set(after.source, after)), effects, (seen,)


def number_of_the_wire(sn: int, near: int, width: int) -> int:
    return sn


def always_ahead(sn: int, near: int, width: int) -> int:
    return near + wrap_number(sn - near, width)


def keep_the_lowest(queue: SampleQueue, history: int) -> SampleQueue:
    numbers = [one for first, last in queue.kept for one in range(first, last + 1)][:history]
    return SampleQueue(tuple((one, one) for one in numbers), len(numbers))


def take_in_anything(queue: SampleQueue, sn: int, count: int, *, history: int, width: int, t_ns: int) -> SampleQueue:
    """A number below a full queue pushes out the next."""
    if queue.count >= history and queue.kept and sn < queue.kept[0][0]:
        first, last = queue.kept[0]
        rest = ((first + 1, last), *queue.kept[1:]) if first < last else queue.kept[1:]
        return SampleQueue(((sn, sn), *rest), queue.count)
    return sample_queue.take_in(queue, sn, count, history=history, width=width, t_ns=t_ns)


def after_the_first(chosen: Any) -> Any:
    def changed(queue: Any, selector: Any, width: int) -> Any:
        first = selector.first
        return chosen(queue, selector if first is None else replace(selector, first=first + 1), width)

    return changed


def oldest_of(found: Any, newest: int) -> Any:
    return tuple((first, first) for first, _ in found[:newest])


def stamp_the_same(record: Any, event: Any, now_ns: int) -> Any:
    after, effects = publisher.stamp(record, event, now_ns)
    return (after if record.next % 2 else record), effects


def send_before_it_is_kept(record: Any, event: Any, now_ns: int) -> Any:
    after, effects = publisher.stamp(record, event, now_ns)
    return after, tuple(one for one in effects if isinstance(one, Send))


def beat_one_less(record: Any, event: Any, now_ns: int) -> Any:
    record, (_, *again) = publisher.beat_again(record, event, now_ns)
    return record, (Send(record.to, Heartbeat(record.source, max(record.next - 2, -1))), *again)


def beat_one_more(record: Any, event: Any, now_ns: int) -> Any:
    record, (_, *again) = publisher.beat_again(record, event, now_ns)
    return record, (Send(record.to, Heartbeat(record.source, record.next)), *again)


def without_history_timeout(one: AnyRow) -> list[AnyRow]:
    if isinstance(one, Row) and one.on is HistoryTimeout:
        return [Row(one.on, one.source, STAY, keep_still, one.when, one.clause)]
    return [one]


def all_but_the_newest(chosen: Any) -> Any:
    """Of what is asked for the last number is left out."""

    def changed(queue: Any, selector: Any, width: int) -> Any:
        *found, (first, last) = chosen(queue, selector, width) or ((0, -1),)
        return (*found, (first, last - 1)) if last > first else tuple(found)

    return changed


def ask_for_the_newest_alone(record: Any, event: Any, now_ns: int) -> Any:
    fewer = replace(record, history=replace(record.history, newest=1))
    return record, subscriber_actions.ask_history(fewer, event, now_ns)[1]


def ask_who_may_live(record: Any, event: Any, now_ns: int) -> Any:
    """Of a source that came up and is gone again nothing more is expected."""
    if record.new and not record.alive:
        return source_actions.live(record, (), now_ns)
    return source_actions.ask_unprompted(record, event, now_ns)


def push_out(record: Any, event: Any, now_ns: int) -> Any:
    """A stranger takes the place of the first."""
    left = replace(record, sources=record.sources.delete(min(record.sources)))
    return subscriber_actions.take_sample(left, event, now_ns)


def turn_away_in_silence(record: Any, event: Any, now_ns: int) -> Any:
    return subscriber_actions.turn_away(record, event, now_ns)[0], ()


def turn_away_uncounted(record: Any, event: Any, now_ns: int) -> Any:
    return record, subscriber_actions.turn_away(record, event, now_ns)[1]


def is_full(record: Any, event: Any) -> bool:
    return len(record.sources) >= int(record.recovery.sources)


def is_almost_one_too_many(record: Any, event: Any) -> bool:
    return event.source not in record.sources and len(record.sources) + 1 >= int(record.recovery.sources)


def cache_pushes_out(record: Any, event: Any, now_ns: int) -> Any:
    """A stranger takes the place of the first queue."""
    left = replace(record, queues=record.queues.delete(min(record.queues)))
    return cache.keep(left, event, now_ns)


def not_kept_in_silence(record: Any, event: Any, now_ns: int) -> Any:
    return cache.turn_away(record, event, now_ns)[0], ()


def let_all_go(record: Any, event: Any, now_ns: int) -> Any:
    return cache.let_go(replace(record, heard=Map()), event, now_ns)


def let_nobody_go(record: Any, event: Any, now_ns: int) -> Any:
    return replace(record, heard=Map()), ()


def let_go_by_what_was_heard_ever(record: Any, event: Any, now_ns: int) -> Any:
    after, effects = cache.let_go(record, event, now_ns)
    return replace(after, heard=record.heard), effects


S, A, W = SOURCE, source_actions, source_windows
_END, _OLD = "the end of a query", "older numbers"

BUGS = (
    Bug("hole-not-asked", "a sample that is ahead is held, and nobody is asked", "MS-04", "the query",
        on(S, Sample, LIVE, do=take_without_asking)),
    Bug("past-not-asked", "what was before the first contact is waited for, and nobody is asked", "MS-02", "the query",
        change_rows(S, "miss_and_ask", do=A.hear)),
    Bug("asks-from-the-top", "a query asks for what follows, and not for what is missing", "MS-04", "the range",
        replace_call(W, "ask_for", ask_from_the_top)),
    Bug("asks-by-the-same-number", "all queries have one number", "MS-12", "the number",
        around(A, "open_windows", ask_by_the_same_number)),
    Bug("one-window-more", "one query more is open than may be", "MS-65", "the windows",
        around(W, "_windows_to_open", one_window_more)),
    Bug("windows-meet", "a window reaches into the next", "MS-65", "the windows",
        around(W, "_windows_to_open", windows_that_meet)),
    Bug("answer-convicts-all", "an answer convicts what is above the highest number that it brought", "MS-08", _END,
        around(W, "_end_window", answer_convicts_all)),
    Bug("empty-end-convicts", "a query that nobody answered convicts", "MS-10", _END,
        around(W, "_end_window", every_end_is_good)),
    Bug("reply-convicts-nothing", "a query that was answered is asked again all the same", "MS-08", _END,
        around(W, "_end_window", no_end_is_good)),
    Bug("transport-is-believed", "where replies may be lost an answered query convicts", "MS-08", "reliable replies",
        around(W, "_end_window", as_if_reliable)),
    Bug("one-try-less", "a number is convicted one query too early", "MS-10", "the tries",
        around(A, "conclude", with_recovery(retries=lambda recovery: max(recovery.retries - 1, 0)))),
    Bug("never-convicts", "a number that no cache has is asked for without end", "MS-10", "the tries",
        around(A, "conclude", with_recovery(retries=99))),
    Bug("progress-is-a-failed-try", "a query that brought something and ended badly counts as failed", "MS-67",
        "the tries", replace_call(A, "fill", progress_is_nothing)),
    Bug("newest-convict", "of a hole that was asked for from its end the rest is convicted, too", "MS-69", _END,
        around(W, "_end_window", as_if_whole)),
    Bug("asks-no-more", "a query that nobody answers is waited for without end", "MS-11", "the timeout",
        change_rows(S, "wait_no_longer", do=keep_still)),
    Bug("silence-convicts", "what nobody has answered is given up", "MS-11", "the timeout",
        change_rows(S, "wait_no_longer", do=give_up_at_once)),
    Bug("part-is-nothing", "an answer of which a part is lost counts as one that brought nothing", "MS-68", "the part",
        around(A, "end_window", part_is_nothing)),
    Bug("part-is-whole", "an answer of which a part is lost convicts", "MS-68", "the part",
        around(A, "end_window", part_is_whole)),
    Bug("reaches-too-far", "a query asks for one number more than it may", "MS-81", "the range",
        around(W, "ask_for", reach_far)),
    Bug("counts-for-ever", "tries for another first number count on", "MS-80", "the tries",
        around(A, "count_failure", count_ever)),
    Bug("never-too-late", "what is missing for too long is waited for", "MS-79", "the deadline",
        change_rows(S, "give_up_the_rest", when=never)),
    Bug("top-never-falls", "what a heartbeat claimed is waited for, though a later one says less", "MS-78",
        "the last number", replace_call(A, "hear_top", hear_the_highest)),
    Bug("far-is-believed", "one number that is far ahead is believed", "MS-70", "the second",
        change_rows(S, "doubt", do=believe_at_once)),
    Bug("token-is-not-asked", "a source that is known by its token alone is not asked", "MS-71", "the query",
        change_rows(S, "appear_and_ask", do=A.appear)),
    Bug("history-asked-once", "a first query that reached nobody is not sent again", "MS-72", "the tries",
        lambda stack: redeclare(stack, SUBSCRIBER, end_history_at_once)),
    Bug("late-end-counts", "the end of an earlier query counts as that of the open one", "MS-12", "the number",
        combine(replace_call(A, "is_open", always), change_rows(S, "end_query", when=always))),
    Bug("attempts-not-counted", "a number that was asked for is asked for again at once", "MS-09", "the pause",
        replace_call(SourceRecord, "attempts", property(lambda record: 0))),
    Bug("asks-again-in-silence", "after the pause nobody is asked", "MS-10", "the query",
        change_rows(S, "rest_no_longer", do=keep_still)),
    Bug("ahead-is-dropped", "what is ahead is not held", "MS-04", "what is held",
        around(A, "receive_samples", only_the_next)),
    Bug("missed-in-silence", "what is convicted is not reported", "MS-23", "the report",
        around(A, "settle_below", without_missed)),
    Bug("missed-twice", "what is convicted is reported twice", "MS-23", "the report",
        around(A, "settle_below", miss_twice)),
    Bug("convicts-one-more", "the first number that nobody was asked for is convicted, too", "MS-08", "below",
        around(A, "settle_below", one_more_below)),
    Bug("older-is-delivered", "a number that is older is delivered again", "MS-03", _OLD,
        change_rows(S, "take", do=deliver_again)),
    Bug("next-is-any", "any sample is taken for the next", "MS-03", "the expected number",
        change_rows(S, "deliver", when=always)),
    Bug("no-bound", "as many samples are held as come", "MS-21", "the bound", replace_call(A, "settle", remove_bound)),
    Bug("bound-of-one-more", "one sample more is held than may be", "MS-21", "the bound",
        replace_call(A, "settle", one_more_held)),
    Bug("gives-up-all-holes", "where too much is held every hole is given up", "MS-21", "the oldest hole",
        replace_call(A, "first_to_keep", give_up_all)),
    Bug("every-heartbeat-asks", "a heartbeat that says nothing new is a reason to ask", "MS-12", "the last number",
        change_rows(S, "miss_and_ask", when=always)),
    Bug("heartbeat-not-noted", "a heartbeat while something is missing is dropped", "MS-07", "the last number",
        change_rows(S, "hear", do=keep_still)),
    Bug("period-once", "after the first periodic query there is none", "MS-17", "the period",
        around(A, "live", live_without_period)),
    Bug("period-asks-nobody", "when the period is over nobody is asked", "MS-17", "the query",
        on(S, PeriodOver, LIVE, do=keep_still)),
    Bug("dead-are-not-asked", "when the period is over those that are known to be dead are not asked for", "MS-17",
        "the query", on(S, PeriodOver, LIVE, do=ask_who_may_live)),
    Bug("history-of-one", "whatever history is wanted, the newest sample alone is asked for", "MS-50", "the query",
        change_rows(SUBSCRIBER, "ask_history", do=ask_for_the_newest_alone)),
    Bug("history-not-waited-for", "what comes while the first query is open is delivered at once", "MS-14", "the wait",
        around(subscriber_actions, "source_of", not_in_history)),
    Bug("history-ends-for-nobody", "the end of the first query is told to no source", "MS-56", "the sources",
        change_rows(SUBSCRIBER, "close_history", do=Delegate(close_nobody))),
    Bug("history-for-ever", "a first query that never ends is waited for", "MS-56", "the timeout",
        lambda stack: redeclare(stack, SUBSCRIBER, without_history_timeout)),
    Bug("history-without-limit", "as much is held for the first query as comes", "MS-16", "the limit",
        combine(change_rows(S, "fill_history_live", when=never), change_rows(S, "fill_history_and_ask", when=never))),
    Bug("end-of-another", "the end of a query goes to the first source", "MS-57", "the source",
        change_rows(SUBSCRIBER, "take_end", do=Delegate(end_for_the_first))),
    Bug("token-is-nothing", "of a source that came up meanwhile what was before the first contact is past", "MS-18",
        "the token", change_rows(S, "appear", do=appear_as_before)),
    Bug("forgets-the-living", "a source that is known to live is forgotten", "MS-19", "the token",
        change_rows(S, "retain", when=was_heard_only)),
    Bug("never-forgets", "a source that was heard of once is never forgotten", "MS-19", "the silence",
        change_rows(S, "retain", do=retain_as_heard)),
    Bug("lives-for-ever", "a token that disappears is taken for there", "MS-18", "the token",
        change_rows(S, "disappear", do=disappear_alive)),
    Bug("gone-is-kept", "a source that is gone is kept", "MS-60", "the end",
        replace_call(subscriber_actions, "step_source", keep_gone)),
    Bug("wire-is-believed", "a number that came round is taken for itself", "MS-62", "the nearest",
        replace_call(subscriber_actions, "unwrap_number", number_of_the_wire)),
    Bug("always-ahead", "every number of the wire is ahead", "MS-62", "the nearest",
        replace_call(subscriber_actions, "unwrap_number", always_ahead)),
    Bug("counts-from-0", "a source is met where the wire begins, and nothing was before", "MS-62", "the origin",
        around(subscriber_actions, "source_of", from_here_on)),
    Bug("strangers-without-limit", "as many sources are kept as come", "MS-63", "the limit",
        change_rows(SUBSCRIBER, "turn_away", when=never)),
    Bug("stranger-pushes-out", "where there is no place a stranger takes that of the first source", "MS-63",
        "the sources", change_rows(SUBSCRIBER, "turn_away", do=Delegate(push_out))),
    Bug("turned-away-in-silence", "the application is not told of samples that are turned away", "MS-63", "the report",
        change_rows(SUBSCRIBER, "turn_away", do=turn_away_in_silence)),
    Bug("turned-away-uncounted", "what is turned away is not counted", "MS-63", "the count",
        change_rows(SUBSCRIBER, "turn_away", do=turn_away_uncounted)),
    Bug("known-is-turned-away", "where all places are taken the known are turned away, too", "MS-63", "the known",
        change_rows(SUBSCRIBER, "turn_away", when=is_full)),
    Bug("one-place-less", "the last place is given to nobody", "MS-63", "the limit",
        change_rows(SUBSCRIBER, "turn_away", when=is_almost_one_too_many)),
    Bug("tokens-without-limit", "a token has a place where there is none", "MS-64", "the limit",
        change_rows(SUBSCRIBER, "count_only", when=never)),
    Bug("token-turned-away-uncounted", "a token that is turned away is not counted", "MS-64", "the count",
        change_rows(SUBSCRIBER, "count_only", do=keep_still)),
    Bug("queues-without-limit", "a cache has as many queues as there are sources", "MS-48", "the limit",
        change_rows(cache.CACHE, "turn_away", when=never)),
    Bug("queue-pushes-out", "where there is no place a stranger takes that of the first queue", "MS-48", "the queues",
        change_rows(cache.CACHE, "turn_away", do=cache_pushes_out)),
    Bug("not-kept-in-silence", "the host is not told what a cache has no place for", "MS-48", "the report",
        change_rows(cache.CACHE, "turn_away", do=not_kept_in_silence)),
    Bug("all-queues-go", "a crowded cache lets busy queues go, too", "MS-49", "the silence",
        change_rows(cache.CACHE, "let_go", do=let_all_go)),
    Bug("no-queue-goes", "a crowded cache lets no queue go", "MS-49", "the silence",
        change_rows(cache.CACHE, "let_go", do=let_nobody_go)),
    Bug("heard-of-old-counts", "who was busy before the cache was crowded again is not silent", "MS-49", "the silence",
        change_rows(cache.CACHE, "let_go", do=let_go_by_what_was_heard_ever)),
    Bug("cache-keeps-the-lowest", "a full queue lets the newest go", "MS-43", "the lowest",
        replace_call(sample_queue, "_within", keep_the_lowest)),
    Bug("resent-pushes-out", "what is below a full queue pushes out something newer", "MS-43", "the lowest",
        replace_call(cache, "take_in", take_in_anything)),
    Bug("range-without-its-begin", "a query is answered with what follows its first number", "MS-44", "the range",
        around(cache, "select_ranges", after_the_first)),
    Bug("all-but-the-newest", "a query is answered with all but the newest that it asks for", "MS-44", "the range",
        around(cache, "select_ranges", all_but_the_newest)),
    Bug("newest-is-oldest", "of the newest so many the oldest are given", "MS-44", "the newest",
        replace_call(sample_queue, "_newest", oldest_of)),
    Bug("number-stamped-twice", "every other number is given twice", "MS-33", "the next number",
        change_rows(PUBLISHER, "stamp", do=stamp_the_same)),
    Bug("sent-and-not-kept", "what is published is not kept", "MS-33", "the cache",
        change_rows(PUBLISHER, "stamp", do=send_before_it_is_kept)),
    Bug("beats-one-less", "a heartbeat says the number before the last", "MS-31", "the last number",
        on(PUBLISHER, HeartbeatDue, publisher.PERIODIC, do=beat_one_less)),
    Bug("beats-one-more", "a heartbeat says the next number", "MS-31", "the last number",
        on(PUBLISHER, HeartbeatDue, publisher.PERIODIC, do=beat_one_more)),
)  # fmt: skip
"""Each with a sentence of its own."""
