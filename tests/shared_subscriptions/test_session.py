"""The Session, clause by clause (spec/shared_subscriptions/clauses.md SS-100 to SS-112)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statemachines.kernel import Ask, LocalProtocolError, Map, Node, Tell
from statemachines.shared_subscriptions import session
from statemachines.shared_subscriptions.borrower import LeaseBegan, LeaseEnded
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.session import (
    SESSION,
    Ack,
    Acknowledged,
    Admit,
    Deliver,
    Dismiss,
    Ended,
    Progressed,
    Ready,
    SessionRecord,
    SessionStatus,
    Take,
    join,
)
from statemachines.shared_subscriptions.session_record import StreamReading, reading_key
from statemachines.shared_subscriptions.stream import Finish, Install, Uninstall
from statemachines.shared_subscriptions.stream_store import Fetched, FetchFailed, MessageBatch

B, C, P = "c1~1/1", "c1~1/2", "c1~1/3"
A = reading_key(B, "a")


class Bench:
    """A session over streams of a given length, whose store answers when `serve` is called."""

    def __init__(self, buffer=8, **lengths):
        self.lengths = lengths
        self.ended = set()
        self.now = 0
        self.asks = []
        self.told = []
        self.clauses = []
        self.node = Node(
            SESSION, SessionRecord("c1~1/0", buffer=buffer), name="c1~1/0", now_ns=0, check=True, observe=self.saw
        )
        self.feed(Admit(B))

    def saw(self, node, event, before, step, now_ns):
        self.clauses.append(SESSION.lines[step.row].clause)

    def feed(self, event):
        return self.perform(self.node.feed(event, self.now))

    def perform(self, effects):
        told = [effect.event for effect in effects if isinstance(effect, Tell)]
        self.asks += [effect.request for effect in effects if isinstance(effect, Ask)]
        self.told += told
        return told

    def tick(self):
        """To the next timer."""
        deadline = self.node.deadline()
        if deadline is None:
            return []
        self.now = max(self.now, deadline)
        return self.perform(self.node.fire(self.now))

    def serve(self):
        """Answer the open fetch."""
        request = self.asks.pop()
        batches = []
        for one in request.slices:
            count = self.lengths.get(one.stream, 0)
            last = max(min(count, one.first + one.limit) - 1, one.first - 1)
            batches.append(
                MessageBatch(one.stream, one.grant, one.first, last, one.stream in self.ended and last + 1 == count)
            )
        return self.feed(Fetched(request.n, tuple(batches)))

    def settle(self):
        """Fetch what there is."""
        for _ in range(4):
            self.tick()
            if self.asks:
                self.serve()

    def reading(self, progress=0, grant=1):
        """Lease, one stream `a`, its first batch fetched."""
        self.feed(LeaseBegan(B))
        self.feed(Install(B, "a", grant, progress))
        self.tick()
        self.serve()
        return self


def test_SS_100_nothing_is_fetched_or_delivered_before_the_lease():
    bench = Bench(a=5)
    bench.feed(Install(B, "a", 1, 0))
    assert bench.tick() == []
    assert bench.feed(Take(10)) == []
    assert bench.asks == []
    bench.feed(LeaseBegan(B))
    bench.tick()
    assert [one.stream for one in bench.asks[0].slices] == ["a"]
    assert bench.node.record.status is SessionStatus.FETCHING
    bench.feed(LeaseBegan(B))
    assert bench.clauses[-1] == "SS-100"
    assert len(bench.asks) == 1


def test_SS_101_the_end_of_the_lease_stops_it_and_what_comes_meanwhile_is_not_kept():
    bench = Bench(a=5)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0))
    bench.tick()
    bench.feed(LeaseEnded(B))
    assert bench.serve() == []
    bench.feed(LeaseEnded(B))
    assert bench.clauses[-1] == "SS-101"
    assert bench.node.record.readings[A].fetched == 0
    assert bench.tick() == []
    assert bench.asks == []
    bench.feed(LeaseBegan(B))
    bench.tick()
    assert bench.serve() == [Ready()]


def test_SS_101_what_was_fetched_under_a_lease_waits_for_the_next_one():
    bench = Bench(a=5).reading()
    bench.feed(LeaseEnded(B))
    assert bench.feed(Take(9)) == []
    assert bench.feed(LeaseBegan(B)) == [Ready()]
    assert bench.feed(Take(9)) == [Deliver(B, "a", 1, 0, 4)]


def test_SS_101_one_owner_s_lease_leaves_the_others_alone():
    bench = Bench(a=5)
    bench.feed(Admit(C))
    for owner in (B, C):
        bench.feed(LeaseBegan(owner))
        bench.feed(Install(owner, "a", 1, 0))
    bench.settle()
    bench.feed(LeaseEnded(B))
    assert bench.feed(Take(9)) == [Deliver(C, "a", 1, 0, 4)]
    assert bench.feed(Take(9)) == []
    bench.feed(Ack(C, "a", 1, 0, 4))
    bench.tick()
    (request,) = bench.asks
    assert [(one.stream, one.first) for one in request.slices] == [("a", 5)], "nothing is fetched for the other"
    bench.feed(LeaseBegan(B))
    assert bench.feed(Take(9)) == [Deliver(B, "a", 1, 0, 4)]


def test_SS_101_turns_of_those_without_a_lease_are_passed_by_up_to_one_that_has():
    bench = Bench(a=5, b=5)
    bench.feed(Admit(C))
    bench.feed(Install(B, "a", 1, 0))
    bench.feed(Install(C, "b", 1, 0))
    bench.feed(LeaseBegan(B))
    record, _ = session.end(bench.node.record, LeaseEnded(B), 0)
    bench.node.record, _ = session.begin(record, LeaseBegan(C), 0)
    bench.tick()
    assert "SS-101" in bench.clauses
    assert [one.stream for one in bench.asks[0].slices] == ["b"]
    assert not bench.node.record.readings[A].queued


def test_SS_101_a_turn_passed_by_in_the_middle_of_the_queue_comes_again_with_the_lease():
    bench = Bench(a=5, b=5)
    bench.feed(Admit(C))
    bench.feed(Install(B, "a", 1, 0))
    bench.feed(Install(C, "b", 1, 0))
    bench.feed(LeaseBegan(B))
    record, _ = session.begin(bench.node.record, LeaseBegan(C), 0)
    bench.node.record, _ = session.end(record, LeaseEnded(C), 0)
    bench.tick()
    assert [one.stream for one in bench.asks[0].slices] == ["a"]
    bench.serve()
    bench.feed(LeaseBegan(C))
    bench.settle()
    assert bench.node.record.readings[reading_key(C, "b")].fetched == 5


def test_SS_101_who_loses_and_gets_its_lease_while_it_waits_has_one_turn():
    bench = Bench(a=5, b=5)
    bench.feed(Admit(C))
    for owner, stream in ((B, "a"), (C, "b")):
        bench.feed(LeaseBegan(owner))
        bench.feed(Install(owner, stream, 1, 0))
    bench.settle()
    bench.feed(LeaseEnded(B))
    assert bench.feed(Take(1)) == [Deliver(C, "b", 1, 0, 0)], "a has been passed by"
    for _ in range(2):
        bench.feed(LeaseBegan(B))
        bench.feed(LeaseEnded(B))
    bench.feed(LeaseBegan(B))
    assert [bench.feed(Take(1))[0].stream for _ in range(6)] == ["b", "a", "b", "a", "b", "a"]


def test_SS_102_a_stream_is_read_from_its_progress_under_its_grant():
    bench = Bench(a=5).reading(progress=3)
    assert bench.feed(Take(10)) == [Deliver(B, "a", 1, 3, 4)]
    bench.feed(Install(B, "a", 2, 4))
    bench.feed(Install(B, "a", 1, 0))
    assert bench.node.record.readings[A].grant == 2
    assert bench.feed(Take(10)) == []


def test_SS_103_one_fetch_at_a_time_and_a_pause_after_nothing():
    bench = Bench(a=2, b=0).reading()
    bench.feed(Install(B, "b", 2, 0))
    bench.tick()
    assert len(bench.asks) == 1
    assert bench.tick() == []
    bench.serve()
    assert bench.node.deadline() == bench.now  # nobody has looked at b
    bench.tick()
    assert [one.stream for one in bench.asks[0].slices] == ["b", "a"]
    bench.serve()
    assert bench.node.deadline() == bench.now + 20 * MS


def test_SS_103_a_new_stream_does_not_wait_for_a_round_over_all_that_are_idle():
    """Seventy thousand idle streams take a minute to look at."""
    names = [f"s{number:03}" for number in range(100)]
    bench = Bench()
    bench.feed(LeaseBegan(B))
    for number, name in enumerate(names, 1):
        bench.feed(Install(B, name, number, 0))
    for _ in range(6):
        bench.tick()
        bench.serve()
    bench.feed(Install(B, "new", 101, 0))
    bench.tick()
    asked = [one.stream for one in bench.asks[0].slices]
    assert asked[0] == "new"
    assert len(asked) == 32


def test_SS_103_idle_streams_have_their_turn_beside_busy_ones():
    busy = [f"busy{number:02}" for number in range(40)]
    bench = Bench(buffer=1_000, idle=0, **dict.fromkeys(busy, 10**6))
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "idle", 1, 0))
    bench.tick()
    bench.serve()
    for number, name in enumerate(busy, 2):
        bench.feed(Install(B, name, number, 0))
    bench.tick()
    bench.serve()
    bench.tick()
    asked = [one.stream for one in bench.asks[0].slices]
    assert len(asked) == 32
    assert "idle" in asked


def test_SS_103_after_a_fetch_that_brought_one_message_the_next_follows_at_once():
    bench = Bench(a=1).reading()
    assert bench.node.deadline() == bench.now


def test_SS_103_a_stream_that_came_back_while_it_waited_is_asked_for_once():
    """Asked for twice in one fetch, its messages would be kept twice."""
    bench = Bench(a=4, b=4)
    bench.feed(Install(B, "a", 1, 0))
    bench.feed(Install(B, "b", 2, 0))
    bench.feed(Uninstall(B, "a", 1))
    bench.feed(Install(B, "a", 3, 0))
    bench.feed(LeaseBegan(B))
    bench.tick()
    assert [(one.stream, one.grant) for one in bench.asks[0].slices] == [("a", 3), ("b", 2)]


def test_SS_103_streams_take_turns():
    bench = Bench(buffer=2, **{f"s{number:02}": 2 for number in range(40)})
    for number in range(40):
        bench.feed(Install(B, f"s{number:02}", number + 1, 0))
    bench.feed(LeaseBegan(B))
    bench.tick()
    first = {one.stream for one in bench.asks[0].slices}
    bench.serve()
    bench.tick()
    second = {one.stream for one in bench.asks[0].slices}
    assert len(first) == 32
    assert len(first | second) == 40


def test_SS_103_those_that_did_not_fit_come_before_those_that_have_room_still():
    names = [f"s{number:02}" for number in range(40)]
    bench = Bench(buffer=8, **dict.fromkeys(names, 1))
    for number, name in enumerate(names, 1):
        bench.feed(Install(B, name, number, 0))
    bench.feed(LeaseBegan(B))
    bench.tick()
    assert [one.stream for one in bench.asks[0].slices] == names[:32]
    bench.serve()
    bench.tick()
    assert [one.stream for one in bench.asks[0].slices] == names[32:] + names[:24]


@pytest.mark.parametrize(
    "batch", [MessageBatch("a", 9, 0, 4, False), MessageBatch("a", 1, 1, 4, False), MessageBatch("x", 1, 0, 4, False)]
)
def test_SS_104_only_what_continues_an_installed_grant_is_kept(batch):
    bench = Bench(a=5)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0))
    bench.tick()
    n = bench.asks[0].n
    bench.feed(Fetched(n + 7, (MessageBatch("a", 1, 0, 4, False),)))
    bench.feed(Fetched(n, (batch,)))
    assert bench.node.record.readings[A].fetched == 0
    bench.feed(Fetched(n, (MessageBatch("a", 1, 0, 4, False),)))
    assert bench.node.record.readings[A].fetched == 0, "one answer to a fetch"


def test_SS_104_grants_of_two_groups_may_be_equal_since_batches_go_by_their_place():
    bench = Bench(a=8)
    bench.feed(Admit(C))
    for owner, progress in ((B, 2), (C, 5)):
        bench.feed(Install(owner, "a", 1, progress))
    bench.node.record, _ = session.begin(bench.node.record, LeaseBegan(B), 0)
    bench.feed(LeaseBegan(C))
    bench.tick()
    assert [(one.stream, one.grant, one.first) for one in bench.asks[0].slices] == [("a", 1, 2), ("a", 1, 5)]
    bench.serve()
    assert bench.feed(Take(9)) == [Deliver(B, "a", 1, 2, 7)]
    assert bench.feed(Take(9)) == [Deliver(C, "a", 1, 5, 7)]


def test_SS_105_a_failed_fetch_is_repeated():
    bench = Bench(a=5)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0))
    bench.tick()
    bench.feed(FetchFailed(bench.asks.pop().n))
    bench.tick()
    assert bench.serve() == [Ready()]


def test_SS_105_an_answer_that_is_not_whole_is_no_answer():
    bench = Bench(a=5)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0))
    bench.tick()
    bench.feed(Fetched(bench.asks.pop().n, ()))
    assert bench.clauses[-1] == "SS-105"
    bench.tick()
    assert bench.serve() == [Ready()]


def test_SS_106_offsets_increase_and_never_more_in_hand_than_the_buffer():
    bench = Bench(buffer=4, a=100).reading()
    assert bench.feed(Take(3)) == [Deliver(B, "a", 1, 0, 2)]
    assert bench.feed(Take(3)) == [Deliver(B, "a", 1, 3, 3)]
    assert bench.feed(Take(3)) == []
    for _ in range(3):
        bench.tick()
    assert bench.asks == []
    bench.feed(Ack(B, "a", 1, 0, 1))
    bench.tick()
    bench.serve()
    assert bench.feed(Take(9)) == [Deliver(B, "a", 1, 4, 5)]


def test_SS_106_fire_and_forget_is_acknowledged_in_the_step_that_delivers():
    bench = Bench(buffer=4, a=6)
    bench.feed(Admit(P, True, True))
    bench.feed(Install(P, "a", 0, 0))
    bench.tick()
    bench.serve()
    expected = [Deliver(P, "a", 0, 0, 3), Acknowledged(P, "a", 0, 0, 3), Progressed(P, "a", 0, 4)]
    assert bench.feed(Take(9)) == expected
    bench.tick()
    bench.serve()
    assert bench.feed(Take(9))[0] == Deliver(P, "a", 0, 4, 5), "the room was used at once"


def test_SS_106_the_application_is_told_whenever_there_is_something_again():
    """Also who has taken all there was, and has not asked for more."""
    bench = Bench(buffer=4, a=4).reading()
    assert bench.told.count(Ready()) == 1
    assert bench.feed(Take(9)) == [Deliver(B, "a", 1, 0, 3)]
    bench.feed(Ack(B, "a", 1, 0, 3))
    bench.lengths["a"] = 6
    bench.settle()
    assert bench.told.count(Ready()) == 2


def test_SS_106_streams_take_turns_in_being_delivered():
    bench = Bench(a=9, b=9).reading()
    bench.feed(Install(B, "b", 1, 0))
    bench.settle()
    taken = [bench.feed(Take(1))[0].stream for _ in range(6)]
    assert taken == ["a", "b", "a", "b", "a", "b"]


def test_SS_107_progress_is_the_fully_acknowledged_prefix():
    bench = Bench(a=8).reading()
    bench.feed(Take(8))
    assert bench.feed(Ack(B, "a", 1, 2, 3)) == [Acknowledged(B, "a", 1, 2, 3)]
    assert bench.feed(Ack(B, "a", 1, 5, 5)) == [Acknowledged(B, "a", 1, 5, 5)]
    assert bench.feed(Ack(B, "a", 1, 0, 1)) == [Acknowledged(B, "a", 1, 0, 1), Progressed(B, "a", 1, 4)]
    assert bench.feed(Ack(B, "a", 1, 0, 4)) == [Acknowledged(B, "a", 1, 0, 4), Progressed(B, "a", 1, 6)]


def test_SS_107_a_shorter_acknowledgement_takes_nothing_back():
    """Beyond a gap, from the same first offset: the longer one stands."""
    bench = Bench(a=8).reading()
    bench.feed(Take(8))
    for last in (5, 3, 2):
        bench.feed(Ack(B, "a", 1, 2, last))
    assert bench.feed(Ack(B, "a", 1, 0, 1))[-1] == Progressed(B, "a", 1, 6)


@pytest.mark.parametrize("ack", [Ack(B, "a", 1, 0, 5), Ack(B, "a", 1, 3, 2)])
def test_SS_107_acknowledging_what_was_never_delivered_is_an_error(ack):
    bench = Bench(a=8).reading()
    bench.feed(Take(5))
    with pytest.raises(LocalProtocolError, match="SS-107"):
        bench.feed(ack)


def test_SS_108_an_acknowledgement_of_a_grant_that_is_gone_changes_nothing():
    bench = Bench(a=8).reading()
    bench.feed(Take(5))
    bench.feed(Install(B, "a", 2, 0))
    before = bench.node.record.readings[A]
    assert bench.feed(Ack(B, "a", 1, 0, 4)) == []
    assert bench.feed(Ack(B, "zzz", 1, 0, 4)) == []
    after = bench.node.record.readings[A]
    assert (after.progress, after.acked) == (before.progress, before.acked)


def test_SS_109_a_finished_stream_reports_its_final_progress_when_nothing_is_in_hand():
    bench = Bench(a=8).reading()
    bench.feed(Take(3))
    assert bench.feed(Finish(B, "a", 1)) == []
    assert bench.feed(Take(3)) == []
    assert bench.feed(Ack(B, "a", 1, 0, 2))[-1] == Progressed(B, "a", 1, 3, True)
    idle = Bench(a=8).reading()
    assert idle.feed(Finish(B, "a", 1)) == [Progressed(B, "a", 1, 0, True)]


def test_SS_109_the_end_of_a_stream_is_reported_when_all_of_it_is_acknowledged():
    bench = Bench(a=3)
    bench.ended = {"a"}
    bench.reading()
    bench.feed(Take(3))
    assert bench.feed(Ack(B, "a", 1, 0, 2))[-1] == Progressed(B, "a", 1, END_OF_STREAM)
    empty = Bench(a=0)
    empty.ended = {"a"}
    empty.feed(LeaseBegan(B))
    empty.feed(Install(B, "a", 1, 0))
    empty.tick()
    assert empty.serve() == [Progressed(B, "a", 1, END_OF_STREAM)]


def test_SS_110_an_uninstalled_stream_is_dropped_and_repetitions_change_nothing():
    bench = Bench(a=8).reading()
    bench.feed(Uninstall(B, "a", 9))
    assert A in bench.node.record.readings
    bench.feed(Uninstall(B, "a", 1))
    assert bench.node.record.readings == Map()
    assert bench.feed(Take(3)) == []
    for event in (Uninstall(B, "a", 1), Finish(B, "a", 1)):
        assert bench.feed(event) == []


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=40))
def test_SS_107_the_prefix_is_what_a_set_of_offsets_says(acks):
    reading = StreamReading(B, "a", 1, 0, 64, 64)
    known = set()
    for first, more in acks:
        reading = join(reading, first, first + more)
        known |= set(range(first, first + more + 1))
        prefix = next(offset for offset in range(64) if offset not in known)
        assert reading.progress == prefix


def test_SS_111_nothing_is_read_for_an_owner_that_was_not_admitted():
    bench = Bench(a=5)
    for event in (LeaseBegan(C), LeaseEnded(C), Install(C, "a", 1, 0), Dismiss(C, "gone")):
        before = bench.node.record
        assert bench.feed(event) == []
        assert bench.node.record == before
    bench.feed(LeaseBegan(B))
    bench.feed(Admit(B))
    assert bench.clauses[-1] == "SS-111"
    assert bench.node.record.leases[B].held, "a second time changes nothing"


def test_SS_112_a_dismissed_owner_leaves_nothing_and_the_application_is_told_if_that_was_the_end():
    bench = Bench(a=5)
    bench.feed(Admit(C))
    for owner in (B, C):
        bench.feed(LeaseBegan(owner))
        bench.feed(Install(owner, "a", 1, 0))
    bench.tick()
    assert bench.feed(Dismiss(B)) == []
    assert bench.feed(Dismiss(C, "one")) == [Ended("one")]
    assert (bench.node.record.leases, bench.node.record.readings) == (Map(), Map())
    bench.serve()
    assert bench.feed(Take(9)) == []
    assert bench.feed(Ack(B, "a", 1, 0, 0)) == []


def test_what_readings_that_are_gone_left_in_the_queues_does_not_fill_up():
    bench = Bench(a=5)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0))
    bench.tick()
    for grant in range(2, 1_000):
        bench.feed(Install(B, "a", grant, 0))
        bench.feed(Uninstall(B, "a", grant))
    assert len(bench.node.record.to_fetch) <= 66


def test_SS_110_what_was_fetched_of_readings_that_are_gone_does_not_fill_up_either():
    """Nobody takes."""
    bench = Bench(a=5)
    bench.feed(LeaseBegan(B))
    for grant in range(1, 100):
        bench.feed(Install(B, "a", grant, 0))
        bench.tick()
        bench.serve()
        bench.feed(Uninstall(B, "a", grant))
    assert len(bench.node.record.to_take) <= 66


def test_SS_107_what_was_acknowledged_in_another_order_leaves_nothing_behind():
    bench = Bench(a=8).reading()
    bench.feed(Take(8))
    for offset in (3, 1, 5, 0, 2, 4):
        bench.feed(Ack(B, "a", 1, offset, offset))
    assert bench.told[-1] == Progressed(B, "a", 1, 6)
    assert bench.node.record.readings[A].acked == Map()


def test_who_waits_keeps_its_turn_when_what_others_left_in_the_queues_is_thrown_out():
    bench = Bench(a=5, b=5, c=5)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0))
    bench.tick()
    bench.feed(Install(B, "b", 1, 0))
    for grant in range(1, 200):
        bench.feed(Install(B, "c", grant, 0))
        bench.feed(Uninstall(B, "c", grant))
    assert len(bench.node.record.to_fetch) < 199
    bench.serve()
    bench.tick()
    assert [one.stream for one in bench.asks[-1].slices] == ["b"]


def test_an_event_costs_the_same_however_many_streams_there_are():
    """Reads of readings and leases are counted, not time."""

    def reads(streams):
        bench = Bench(a=5).reading()
        for number in range(streams):
            bench.feed(Install(B, f"s{number}", number + 2, 0))
        bench.feed(Take(2))
        record, counted = bench.node.record, Counted(bench.node.record.readings)
        for event in (Take(2), Ack(B, "a", 1, 0, 1), Install(B, "new", 9_999, 0), Uninstall(B, "a", 1)):
            SESSION.step(msgspec.structs.replace(record, readings=counted), event, 0)
        return counted.reads

    assert reads(1_000) == reads(10) > 0


class Counted:
    """A map that counts who looks into it."""

    def __init__(self, map):
        self.map, self.reads = map, 0

    def __getattr__(self, name):
        self.reads += 1
        return getattr(self.map, name)

    def __getitem__(self, key):
        self.reads += 1
        return self.map[key]

    def __len__(self):
        return len(self.map)

    def __iter__(self):
        raise AssertionError("a step walks over all readings")
