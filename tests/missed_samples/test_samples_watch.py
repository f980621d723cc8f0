"""The watch of missed samples: every property is broken by hand, and told by its name."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines.kernel import Map, Node
from statemachines.missed_samples import message, source_record
from statemachines.missed_samples.cache import CACHE, CacheRecord, CrowdedOver, LetGo, NotKept, Published
from statemachines.missed_samples.publisher import PUBLISHER, Publish, PublisherRecord
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.sample_queue import SampleQueue
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import History, HistoryTimeout, SubscriberRecord
from statemachines_sim.judge import Judge, Violation
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.missed_samples.watch import SampleWatch

S = 1_000_000_000
LIFE = "subscriber-1~1"


class Process:
    """A subscriber that does what a test says."""

    life, node, is_paused = LIFE, "subscriber-1", False


class Step:
    def __init__(self, record):
        self.record = record


class Bench:
    """A watch beside a subscriber whose every word a test makes up; `kept`: the sources that it says it keeps."""

    def __init__(self, *, history=None, whole=False, width=64, **recovery):
        self.own = SampleSection(recovery=Recovery(**recovery), history=history, whole=whole, width=width)
        self.watch = SampleWatch(self.own, Judge())
        self.now = 0
        self.kept = set()
        self.dropped = 0
        self.turned_away = 0
        self.node = Node(SUBSCRIBER, SubscriberRecord(self.own.recovery), name=LIFE, now_ns=0)

    def step(self, event):
        one = source_record.SourceRecord("x", self.own.recovery, dropped=self.dropped)
        sources = Map(dict.fromkeys(self.kept, one))
        record = SubscriberRecord(self.own.recovery, sources=sources, turned_away=self.turned_away)
        self.watch.step(self.node, event, None, Step(record), self.now)

    def come(self, *numbers, source="p"):
        """Samples come, of a source that is kept from then on."""
        self.kept.add(source)
        for number in numbers:
            self.step(message.Sample(source, number, number))

    def deliver(self, first, last=None, source="p"):
        self.tell(message.Deliver(source, first, first if last is None else last))

    def miss(self, first, last=None, source="p"):
        self.tell(message.Missed(source, first, first if last is None else last))

    def tell(self, event):
        self.watch.tell(Process, LIFE, event, self.now)

    def ask(self, first, n=1, source="p"):
        last = first + self.own.recovery.window - 1
        self.watch.observe_query(LIFE, message.Query(source, n, first, last=last), self.now)

    def look(self, first, n=1, source="p"):
        """It asks for the newest from a number on."""
        self.watch.observe_query(LIFE, message.Query(source, n, first, 2, 0, first - 1), self.now)

    def end(self, n=1, brought=2, source="p"):
        self.step(message.QueryEnded(source, n, brought))

    def gap(self, **given):
        """0 is delivered, 2 has come, and 1 was asked for."""
        self.come(0)
        self.deliver(0)
        self.come(2)
        self.ask(1)


def breaks(name):
    return pytest.raises(Violation, match=f"^{name}: ")


def test_a_life_without_a_mistake_breaks_nothing():
    bench = Bench()
    bench.gap()
    bench.end()
    bench.miss(1)
    bench.deliver(2)
    bench.come(3)
    bench.deliver(3)
    bench.dropped = 1
    bench.come(3)
    bench.step(message.Heartbeat("p", 3))
    assert bench.watch.tally()["missed"] == 1
    assert bench.watch.tally()["delivered"] == 3


def test_ONCE_a_number_is_told_again():
    bench = Bench()
    bench.come(0)
    bench.deliver(0)
    with breaks("ONCE"):
        bench.deliver(0)


def test_ORDER_something_is_told_from_before_the_first():
    bench = Bench()
    bench.come(5)
    with breaks("ORDER"):
        bench.deliver(4, 5)


def test_ORDER_something_is_told_while_the_first_query_is_open():
    bench = Bench(history=History())
    bench.come(5)
    with breaks("ORDER"):
        bench.deliver(5)


def test_ORDER_a_publisher_that_repeats_a_number():
    bench = Bench()
    node = Node(PUBLISHER, PublisherRecord("p", "demo/0"), name="p", now_ns=0)
    bench.watch.step(node, Publish(3), None, Step(PublisherRecord("p", "demo/0", next=3)), 0)
    with breaks("ORDER"):
        bench.watch.step(node, Publish(1), None, Step(PublisherRecord("p", "demo/0", next=3)), 0)


def test_REPORT_a_number_is_passed_over():
    bench = Bench()
    bench.gap()
    with breaks("REPORT"):
        bench.deliver(2)


def test_INVENTED_what_was_never_heard_of_or_has_not_come():
    for told in (message.Missed("p", 1, 1), message.Deliver("p", 1, 1), message.Deliver("q", 0, 0)):
        bench = Bench()
        bench.come(0)
        bench.deliver(0)
        with breaks("INVENTED"):
            bench.tell(told)
    bench = Bench()
    bench.gap()
    with breaks("INVENTED"):
        bench.deliver(1, 2)


def test_INVENTED_a_sample_without_source_is_kept_back():
    bench = Bench()
    bench.step(message.Unnumbered())
    bench.tell(message.DeliverUnnumbered())
    bench.step(message.Unnumbered())
    with breaks("INVENTED"):
        bench.step(message.Heartbeat("p", -1))


def test_NOGAP_what_has_come_is_reported_missed():
    bench = Bench()
    bench.gap()
    bench.end()
    with breaks("NOGAP"):
        bench.miss(1, 2)


def test_HASTY_a_number_is_given_up_without_a_reply_or_enough_queries():
    bench = Bench(retries=1)
    bench.gap()
    bench.end(brought=0)
    bench.now = S
    bench.ask(1, n=2)
    with breaks("HASTY"):
        bench.miss(1)
    bench = Bench(reliable=False, retries=1)
    bench.gap()
    bench.end()
    with breaks("HASTY"):
        bench.miss(1)


def test_HASTY_what_was_missed_after_the_query_was_sent_is_given_up_with_it():
    bench = Bench()
    bench.gap()
    bench.come(4)
    bench.end()
    bench.miss(1)
    bench.deliver(2)
    with breaks("HASTY"):
        bench.miss(3)


def test_HASTY_not_where_too_much_is_held_or_it_was_asked_for_often_enough():
    bench = Bench(pending=1)
    bench.gap()
    bench.come(4)
    bench.miss(1)
    bench = Bench(retries=1)
    bench.gap()
    bench.end(brought=0)
    bench.now = S
    bench.ask(1, n=2)
    bench.step(source_record.QueryTimeout("p"))
    bench.miss(1)


def test_WHOLE_where_nothing_may_be_missed():
    bench = Bench(whole=True)
    bench.gap()
    bench.end()
    with breaks("WHOLE"):
        bench.miss(1)


def test_QUIET_a_query_and_nothing_is_missing():
    bench = Bench()
    bench.come(0)
    bench.deliver(0)
    bench.step(source_record.PeriodOver("p"))
    bench.look(1)
    bench = Bench()
    bench.come(0)
    bench.deliver(0)
    with breaks("QUIET"):
        bench.ask(1)
    with breaks("QUIET"):
        bench.ask(0, source="q")
    with breaks("QUIET"):
        bench.ask(0, source="*")


def test_ASKED_a_second_query_or_for_something_else():
    bench = Bench()
    bench.gap()
    with breaks("ASKED"):
        bench.ask(1, n=2)
    bench = Bench()
    bench.come(0)
    bench.deliver(0)
    bench.come(2)
    with breaks("ASKED"):
        bench.ask(2)


def test_ASKED_nobody_is_asked():
    bench = Bench()
    bench.come(0)
    bench.deliver(0)
    bench.come(2)
    with breaks("ASKED"):
        bench.come(3)
    bench = Bench()
    bench.gap()
    bench.come(4)
    bench.end()
    bench.miss(1)
    bench.deliver(2)
    with breaks("ASKED"):
        bench.step(message.Heartbeat("p", 4))


def test_ASKED_a_pause_is_none_of_it():
    for over in (message.QueryEnded("p", 1), source_record.QueryTimeout("p")):
        bench = Bench()
        bench.gap()
        bench.step(over)
        bench.come(4)
        bench.come(6)


def test_LIVE_a_hole_lasts_too_long():
    bench = Bench(retries=0, timeout_ms=1_000, timeout_max_ms=1_000, backoff_ms=100, backoff_max_ms=500)
    bench.gap()
    bench.end()
    bench.now = 3 * S
    bench.miss(1)
    bench = Bench(retries=0, timeout_ms=1_000, timeout_max_ms=1_000, backoff_ms=100, backoff_max_ms=500)
    bench.gap()
    bench.end()
    bench.now = 3 * S + 1
    with breaks("LIVE"):
        bench.miss(1)


def test_LIVE_a_hole_may_last_longer_where_what_is_missing_comes():
    bench = Bench(retries=0, timeout_ms=1_000, timeout_max_ms=1_000, backoff_ms=100, backoff_max_ms=500)
    bench.come(0)
    bench.deliver(0)
    bench.come(9)
    bench.ask(1)
    for second, number in enumerate((8, 5, 3), 1):
        bench.now = 2 * second * S
        bench.come(number)
    bench.end(brought=8)
    bench.miss(1, 2)
    bench.deliver(3)


def test_LIVE_not_from_before_a_first_query_was_over():
    bench = Bench(
        history=History(), retries=0, timeout_ms=1_000, timeout_max_ms=1_000, backoff_ms=100, backoff_max_ms=500
    )
    bench.come(0, 2)
    bench.watch.observe_query(LIFE, message.Query("*", 1, 0), 0)
    bench.now = 2 * S
    bench.step(HistoryTimeout())
    bench.deliver(0)
    bench.ask(1)
    bench.now = 5 * S
    bench.end()
    bench.miss(1)


def test_ISOLATION_what_is_next_waits():
    bench = Bench()
    bench.come(0)
    with breaks("ISOLATION"):
        bench.come(1)


class Shelf:
    """A cache whose queues a test makes up."""

    def __init__(self, **given):
        self.bench = Bench()
        self.record = CacheRecord(**given)
        self.node = Node(CACHE, self.record, name="c~1/cache", now_ns=0)
        self.queues = {}
        self.not_kept = 0

    def step(self, event):
        record = replace(self.record, queues=Map(self.queues), not_kept=self.not_kept)
        self.bench.watch.step(self.node, event, None, Step(record), 0)

    def come(self, first, last, *kept, source="p"):
        """Samples come, and these ranges are kept then."""
        self.queues[source, "k"] = SampleQueue(kept, sum(end - begin + 1 for begin, end in kept))
        self.step(Published("k", source, first, last))

    def tell(self, event):
        self.bench.watch.tell(Process, "c~1/cache", event, 0)


def test_BOUND_a_cache_that_keeps_too_much():
    for queues in ({("p", "k"): SampleQueue(((0, 2),), 2)}, {("p", "k"): SampleQueue(), ("q", "k"): SampleQueue()}):
        shelf = Shelf(history=2, places=1)
        shelf.queues = queues
        with breaks("BOUND"):
            shelf.step(Published("k", "p", 2, 2))


def test_REPLIES_a_cache_keeps_the_highest_that_ever_came():
    shelf = Shelf(history=3)
    shelf.come(4, 5, (4, 5))
    shelf.come(8, 8, (4, 5), (8, 8))
    shelf.come(6, 7, (6, 8))
    shelf.come(2, 3, (6, 8))
    shelf.come(20, 29, (27, 29))


@pytest.mark.parametrize("kept", [((4, 5), (8, 8)), ((4, 6),), ((7, 8),), ((6, 6), (8, 8)), ()])
def test_REPLIES_a_cache_that_keeps_something_else(kept):
    shelf = Shelf(history=3)
    shelf.come(4, 5, (4, 5))
    with breaks("REPLIES"):
        shelf.come(6, 8, *kept)


def test_REPLIES_nothing_is_taken_in_from_elsewhere_by_a_cache_beside_a_publisher():
    Shelf(local=True).step(Published("k", "p", 2, 2))
    with breaks("REPLIES"):
        Shelf(local=True).step(Published("k", "p", 2, 2, True))


def test_QUEUES_a_cache_with_room_that_takes_nothing_in_or_one_without_that_does():
    with breaks("REPLIES"):
        Shelf(places=1).step(Published("k", "p", 2, 2))
    full = Shelf(places=1)
    full.come(0, 0, (0, 0), source="q")
    full.not_kept = 1
    full.step(Published("k", "p", 2, 2))
    full.tell(NotKept("k", "p", 2, 2))
    full.queues = {("p", "k"): SampleQueue(((3, 3),), 1)}
    with breaks("QUEUES"):
        full.step(Published("k", "p", 3, 3))


def crowded():
    """One queue, of two, is silent, and somebody has found no place."""
    shelf = Shelf(places=2)
    shelf.come(0, 0, (0, 0))
    shelf.come(0, 0, (0, 0), source="q")
    shelf.not_kept = 2
    shelf.step(Published("k", "r", 2, 3))
    shelf.tell(NotKept("k", "r", 2, 3))
    shelf.come(1, 1, (1, 1), source="q")
    return shelf


def test_QUEUES_the_silent_go_and_that_is_told():
    shelf = crowded()
    del shelf.queues["p", "k"]
    shelf.step(CrowdedOver("crowded"))
    shelf.tell(LetGo("k", "p"))
    shelf.come(5, 5, (5, 5), source="r")
    shelf.step(CrowdedOver("crowded"))
    assert shelf.bench.watch.tally()["let_go"] == 1
    assert shelf.bench.watch.tally()["not_kept"] == 2


@pytest.mark.parametrize("gone", [(), ("q",), ("p", "q")])
def test_QUEUES_others_go_or_nobody_does(gone):
    shelf = crowded()
    for source in gone:
        del shelf.queues[source, "k"]
    with breaks("QUEUES"):
        shelf.step(CrowdedOver("crowded"))


def test_QUEUES_what_is_not_kept_or_let_go_in_silence_or_said_and_not_done():
    shelf = Shelf(places=1)
    shelf.come(0, 0, (0, 0))
    with breaks("QUEUES"):
        shelf.tell(NotKept("k", "p", 0, 0))
    shelf.not_kept = 1
    shelf.step(Published("k", "q", 2, 2))
    with breaks("QUEUES"):
        shelf.step(Published("k", "q", 3, 3))
    shelf = crowded()
    with breaks("QUEUES"):
        shelf.tell(LetGo("k", "p"))
    del shelf.queues["p", "k"]
    shelf.step(CrowdedOver("crowded"))
    with breaks("QUEUES"):
        shelf.come(2, 2, (2, 2), source="q")


def test_COUNT_what_is_not_kept_is_not_counted():
    shelf = Shelf(places=1)
    shelf.come(0, 0, (0, 0))
    with breaks("COUNT"):
        shelf.step(Published("k", "q", 2, 2))


def test_COUNT_what_is_dropped_or_turned_away_is_not_counted():
    bench = Bench()
    bench.come(0)
    bench.deliver(0)
    with breaks("COUNT"):
        bench.come(0)
    for event in (message.Sample("q", 0, 0), message.Heartbeat("q", 0), source_record.Appeared("q", False)):
        bench = Bench(sources=1)
        bench.come(0)
        bench.deliver(0)
        with breaks("COUNT"):
            bench.step(event)


def test_TIMING_a_pause_is_cut_short():
    for over, pause in ((message.QueryEnded("p", 1), 100), (source_record.QueryTimeout("p"), 100)):
        for early in (0, 1):
            bench = Bench()
            bench.gap()
            bench.step(over)
            bench.now = pause * 1_000_000 - early
            bench.step(message.Heartbeat("p", 2))
            if early:
                with breaks("TIMING"):
                    bench.ask(1, n=2)
            else:
                bench.ask(1, n=2)


def test_TIMING_a_pause_doubles_up_to_the_greatest():
    bench = Bench(backoff_max_ms=150)
    bench.gap()
    for n, pause in ((1, 100), (2, 150), (3, 150)):
        bench.end(n, brought=0)
        bench.now += pause * 1_000_000
        bench.ask(1, n=n + 1)
    bench.end(4, brought=0)
    bench.now += 149_999_999
    with breaks("TIMING"):
        bench.ask(1, n=5)


def test_TIMING_there_is_no_pause_before_what_nobody_was_asked_for():
    bench = Bench()
    bench.gap()
    bench.come(4)
    bench.end()
    bench.miss(1)
    bench.deliver(2)
    bench.ask(3, n=2)


def test_NOGAP_what_a_cache_had_that_the_query_reached_has_not_come():
    def reached(*kept, node="subscriber-1", key="demo/1"):
        bench = Bench()
        bench.gap()
        record = CacheRecord(queues=Map({("p", key): SampleQueue(kept, 9), ("q", key): SampleQueue(((0, 0),), 1)}))
        bench.watch.owed.reach(LIFE, node, message.Query("p", 1, 1), record, 0)
        return bench

    reached((0, 0), (2, 2)).end()
    reached((1, 2), node="subscriber-2").end()
    for kept in (((1, 2),), ((2, 3),)):
        with breaks("NOGAP"):
            reached(*kept).end()
    came = reached((0, 3))
    came.come(1)
    came.deliver(1, 2)
    came.come(3)
    came.deliver(3)
    came.end()
    lost = reached((1, 2))
    lost.watch.owed.lose(LIFE, message.Query("p", 1, 1), "p", 1, 1)
    lost.end()
    half = reached((1, 2))
    half.watch.owed.forgive(LIFE, message.Query("p", 1, 1))
    half.end()


@pytest.mark.parametrize(("history", "owed"), [(History(), 2), (History(2), 5), (History(0, 1_000), 6)])
def test_NOGAP_the_history_that_is_wanted_has_not_come(history, owed):
    def ended(lowest):
        bench = Bench(history=history)
        times = Map({number: number * S for number in range(2, 7)})
        record = CacheRecord(queues=Map({("p", "demo/0"): SampleQueue(((2, 6),), 5, times)}))
        bench.watch.owed.reach(LIFE, "subscriber-1", message.Query("*", 1, 0), record, 7 * S)
        bench.come(*range(lowest, 7))
        bench.step(message.QueryEnded("*", 1, 1))

    ended(owed)
    with breaks("NOGAP"):
        ended(owed + 1)


def test_NOGAP_of_a_source_nothing_has_come_at_all():
    bench = Bench(history=History())
    record = CacheRecord(queues=Map({("p", "demo/0"): SampleQueue(((2, 6),), 5)}))
    bench.watch.owed.reach(LIFE, "subscriber-1", message.Query("*", 1, 0), record, 0)
    with breaks("NOGAP"):
        bench.step(message.QueryEnded("*", 1))


def test_PLACES_a_source_too_many_is_kept_or_one_is_pushed_out():
    bench = Bench(sources=1)
    bench.come(0)
    bench.deliver(0)
    bench.turned_away = 1
    with breaks("PLACES"):
        bench.come(0, source="q")
    bench = Bench(sources=2)
    bench.come(0)
    bench.deliver(0)
    bench.kept.clear()
    with breaks("PLACES"):
        bench.step(message.Sample("q", 0, 0))
        bench.step(message.Sample("q", 1, 1))


def test_HASTY_who_holds_as_many_as_it_may_gives_nothing_up_for_that():
    bench = Bench(pending=1)
    bench.gap()
    with breaks("HASTY"):
        bench.miss(1)
    bench = Bench(pending=1)
    bench.gap()
    bench.come(4)  # one more than it may
    bench.miss(1)


def test_NOGAP_nothing_is_owed_of_a_source_that_was_forgotten():
    bench = Bench(retention_ms=1_000)
    bench.come(0)
    bench.deliver(0)
    record = CacheRecord(queues=Map({("p", "demo/1"): SampleQueue(((0, 1),), 2)}))
    bench.watch.owed.reach(LIFE, "subscriber-1", message.Query("p", 1, 1), record, 0)
    bench.now = S
    bench.kept.clear()
    bench.step(source_record.RetentionOver("p"))
    assert bench.watch.tally()["forgotten"] == 1
    bench.end()


@pytest.mark.parametrize(("width", "first"), [(64, 0), (32, 2**32)])
def test_PLACES_a_stranger_is_turned_away_by_its_numbers_as_the_application_counts_them(width, first):
    def turned_away(begin):
        bench = Bench(sources=1, width=width)
        bench.come(0)
        bench.deliver(0)
        bench.turned_away = 1
        bench.step(message.Sample("q", 3, 3))
        bench.tell(message.TurnedAway("q", begin + 3, begin + 3))

    turned_away(first)
    with breaks("PLACES"):
        turned_away(first + 1)


def test_NOGAP_nothing_is_owed_of_a_stranger_that_was_turned_away():
    def ended(*strangers):
        bench = Bench(sources=1, history=History())
        record = CacheRecord(queues=Map({("q", "demo/1"): SampleQueue(((0, 0),), 1)}))
        bench.watch.owed.reach(LIFE, "subscriber-1", message.Query("*", 1, 0), record, 0)
        bench.come(0)
        for bench.turned_away, source in enumerate(strangers, 1):
            bench.step(message.Sample(source, 0, 0))
            bench.tell(message.TurnedAway(source, 0, 0))
        bench.step(message.QueryEnded("*", 1, 1))

    ended("q")
    with breaks("NOGAP"):
        ended()


def test_PLACES_a_stranger_is_turned_away_in_silence_or_a_known_source_is_turned_away():
    bench = Bench(sources=1)
    bench.come(0)
    bench.deliver(0)
    bench.turned_away = 2
    bench.step(message.Sample("q", 3, 4))
    bench.tell(message.TurnedAway("q", 3, 4))
    bench.turned_away = 3
    bench.step(message.Sample("q", 5, 5))
    with breaks("PLACES"):
        bench.step(message.Sample("q", 6, 6))
    with breaks("PLACES"):
        bench.tell(message.TurnedAway("p", 1, 1))
    assert bench.watch.tally()["turned_away"] == 2


def test_FORGOTTEN_a_source_that_is_not_silent_or_lives_or_has_a_hole():
    def forgotten(bench, at, event=None):
        bench.now = at
        bench.kept.clear()
        bench.step(event or source_record.RetentionOver("p"))

    quiet = Bench(retention_ms=1_000)
    quiet.come(0)
    quiet.deliver(0)
    forgotten(quiet, S)
    assert quiet.watch.tally()["forgotten"] == 1
    early, lives, hole = (Bench(retention_ms=1_000) for _ in range(3))
    early.come(0)
    early.deliver(0)
    with breaks("FORGOTTEN"):
        forgotten(early, S - 1)
    lives.come(0)
    lives.deliver(0)
    lives.step(source_record.Appeared("p", False))
    with breaks("FORGOTTEN"):
        forgotten(lives, 2 * S)
    hole.gap()
    with breaks("FORGOTTEN"):
        forgotten(hole, 2 * S)
    unmet = Bench()
    unmet.kept.add("p")
    unmet.step(source_record.Appeared("p", True))
    forgotten(unmet, 1, source_record.Disappeared("p"))


def test_what_is_beyond_the_limit_of_history_is_told_before_the_end_of_the_first_query():
    bench = Bench(history=History(), history_limit=1)
    bench.come(3, 4)
    bench.deliver(3, 4)


def test_what_was_before_the_first_contact_is_owed_where_the_past_counts():
    bench = Bench(past=True)
    bench.come(2)
    bench.ask(0)
    bench.end()
    bench.miss(0, 1)
    bench.deliver(2)


def test_numbers_of_the_wire_are_those_that_the_publisher_counted():
    bench = Bench(width=8)
    bench.watch.sent["p"] = 260
    bench.come(254)
    bench.deliver(510)
    bench.step(message.Sample("p", 255, 258))
    bench.deliver(511, 514)
    assert bench.watch.readers[LIFE].sources["p"].seen.next == 259


def test_while_the_first_query_is_open_a_source_begins_with_the_lowest_that_came():
    bench = Bench(history=History())
    bench.come(5, 4)
    bench.step(message.QueryEnded("*", 1, 1))
    bench.deliver(4, 5)
