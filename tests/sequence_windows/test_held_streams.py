"""Recovery: what is known to be missing is held and asked for, delivered in order, or reported once."""

from __future__ import annotations

import gc

import pytest

from statemachines.drivers import sequence_windows
from statemachines.drivers.sequence_windows.datagram import decode, encode
from statemachines.kernel import ConfigurationError

S = 1_000_000_000
MS = 1_000_000
T = 1659131646 * S
B = 0x5C19ADC000000000
FIRST, NEXT, SKIP, CYCLE, REPEAT, NOT_SUBSCRIBED = sequence_windows.Verdict
QUICK = sequence_windows.Recovery(retries=2, timeout_ms=100, backoff_ms=10, backoff_max_ms=40)
LONGEST_NS = (2 + 2) * (100 + 40) * MS


class Desk:
    """A wire that is carried by hand, queries that are answered by hand, and two clocks that are set by hand."""

    def __init__(self, **given):
        self.wall, self.now = T, 0
        self.clocks = {"wall": lambda: self.wall, "now": lambda: self.now}
        self.got, self.lost, self.advised, self.asked, self.seen = [], [], [], [], []
        self.subscriber = sequence_windows.SequencedSubscriber(
            self.got.append,
            on_loss=self.lost.append,
            on_advisory=self.advised.append,
            observe=lambda *seen: self.seen.append(seen[2].verdict),
            **{"everything": True, "recovery": QUICK, "ask": self.asked.append, **self.clocks, **given},
        )

    def publisher(self, name="p", **given):
        wire: list[bytes] = []
        one = sequence_windows.SequencedPublisher(
            wire.append, publisher=name, **{"history": 100, **self.clocks, **given}
        )
        return one, wire

    def send(self, count, subject="s", **given):
        """The publisher, and so many messages of it."""
        one, wire = self.publisher(**given)
        for number in range(count):
            one.publish(subject, b"%d" % number)
        return one, wire

    def arrive(self, wire, *places):
        return [self.subscriber.receive(wire[place]) for place in places]

    def payloads(self):
        return [int(one.payload) for one in self.got]

    def told(self):
        """(payload, verdict, lost, recovered)"""
        return [(int(one.payload), one.verdict, one.lost, one.recovered) for one in self.got]

    def answer(self, publisher, query=None, *, replied=True):
        query = query or self.asked.pop()
        for data in publisher.answer(query):
            self.subscriber.receive_recovered(data)
        self.subscriber.close_query(query, replied)

    def pass_time(self, ns):
        """As a loop would: it polls whenever the deadline comes."""
        end = self.now + ns
        while (due := self.subscriber.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.subscriber.poll()
        self.now = end
        self.subscriber.poll()

    def row(self):
        (row,) = self.subscriber.losses().rows
        return row

    def at_rest(self):
        """Nothing is left of what was held."""
        held = self.subscriber._held
        return (len(held), held.bytes, held._runner.record.runs, len(held._runner.nodes), held.deadline()) == (
            0,
            0,
            0,
            0,
            None,
        )


def query(first, last, publisher="p", subject="s"):
    return (publisher, subject, first, last)


def asked_of(one):
    return (one.publisher, one.subject, one.first, one.last)


# -- one hole -------------------------------------------------------------------------------


def test_SW_70_a_known_skip_is_held_and_asked_for():
    desk = Desk()
    one, wire = desk.send(6)
    given = desk.arrive(wire, 0, 4)
    assert isinstance(given[0], sequence_windows.Delivery)
    assert given[1] is None
    assert desk.payloads() == [0]
    assert [asked_of(each) for each in desk.asked] == [query(B + 2, B + 4)]
    assert (desk.asked[0].frame, desk.subscriber.incomplete_streams) == (B >> 35, 1)
    assert (desk.lost, desk.advised, desk.row().lost) == ([], [], 0)
    desk.answer(one)
    assert desk.told() == [
        (0, FIRST, 0, False),
        (1, NEXT, 0, True),
        (2, NEXT, 0, True),
        (3, NEXT, 0, True),
        (4, NEXT, 0, False),
    ]
    desk.arrive(wire, 5)
    assert desk.told()[5:] == [(5, NEXT, 0, False)]
    assert desk.seen == [FIRST, SKIP, NEXT]
    assert (desk.lost, desk.advised, desk.row().lost) == ([], [], 0)
    assert desk.at_rest()
    counts = desk.subscriber.recovery_counts
    assert (counts.asked, counts.recovered, counts.lost, counts.again, counts.strange) == (1, 3, 0, 0, 0)


def test_SW_71_what_will_not_come_counts_then_and_not_before():
    desk = Desk()
    one, wire = desk.send(8, history=5)
    desk.arrive(wire, 0, 6, 7)
    assert desk.payloads() == [0]
    desk.answer(one)
    assert desk.told() == [
        (0, FIRST, 0, False),
        (3, SKIP, 2, True),
        (4, NEXT, 0, True),
        (5, NEXT, 0, True),
        (6, NEXT, 0, False),
        (7, NEXT, 0, False),
    ]
    assert desk.lost == [sequence_windows.Loss("p", "s", B + 4, 2, False)]
    assert [fields["lost"] for fields in desk.advised] == [2]
    assert (desk.row().lost, desk.row().unknown, desk.row().lost_ns) == (2, 0, T)
    assert desk.subscriber.recovery_counts.lost == 2
    assert desk.at_rest()


def test_nobody_answers_and_all_of_it_is_reported_in_time():
    desk = Desk()
    _, wire = desk.send(5)
    desk.arrive(wire, 0, 4)
    desk.pass_time(LONGEST_NS)
    assert desk.told() == [(0, FIRST, 0, False), (4, SKIP, 3, False)]
    assert len(desk.asked) == 3  # once, and retries
    assert len({(each.run, each.n) for each in desk.asked}) == 3
    assert desk.at_rest()


def test_an_end_without_an_answer_convicts_nobody_but_the_last():
    desk = Desk()
    one, wire = desk.send(5)
    desk.arrive(wire, 0, 4)
    desk.subscriber.close_query(desk.asked[-1], False)
    assert desk.payloads() == [0]
    desk.pass_time(15 * MS)
    assert len(desk.asked) == 2
    desk.subscriber.close_query(desk.asked[0], True)  # the one before: late, and of no meaning any more
    assert desk.payloads() == [0]
    desk.answer(one)
    assert desk.payloads() == [0, 1, 2, 3, 4]


def test_a_second_hole_is_asked_for_when_the_first_query_is_over():
    desk = Desk()
    one, wire = desk.send(10)
    desk.arrive(wire, 0, 2, 5)
    assert [asked_of(each) for each in desk.asked] == [query(B + 2, B + 2)]
    desk.answer(one)
    assert desk.payloads() == [0, 1, 2]
    assert [asked_of(each) for each in desk.asked] == [query(B + 4, B + 5)]
    desk.answer(one)
    assert desk.payloads() == [0, 1, 2, 3, 4, 5]
    assert desk.at_rest()


def test_what_was_overtaken_is_taken_and_is_no_repeat():
    desk = Desk()
    _, wire = desk.send(6)
    desk.arrive(wire, 0, 3, 1, 1, 3)
    assert desk.told() == [(0, FIRST, 0, False), (1, NEXT, 0, True)]
    assert desk.row().repeat == 2
    desk.arrive(wire, 2, 4)
    assert desk.told()[2:] == [(2, NEXT, 0, True), (3, NEXT, 0, False), (4, NEXT, 0, False)]
    assert (desk.row().repeat, desk.row().lost) == (2, 0)
    assert desk.at_rest()
    desk.arrive(wire, 2)
    assert desk.row().repeat == 3


def test_SW_77_a_copy_of_an_answer_and_an_answer_that_nobody_waits_for():
    desk = Desk()
    one, wire = desk.send(6)
    desk.arrive(wire, 0, 5)
    (asked,) = desk.asked
    replies = one.answer(asked)
    assert [decode(each).number for each in replies] == [B + 2, B + 3, B + 4, B + 5]
    assert desk.subscriber.receive_recovered(wire[5]) is None  # it came by itself
    assert desk.subscriber.receive_recovered(replies[1]) is None
    assert desk.subscriber.receive_recovered(replies[1]) is None
    assert desk.subscriber.receive_recovered(replies[0]).payload == b"1"
    assert desk.payloads() == [0, 1, 2]
    for number in (B + 1, B + 7, B + 99, (1 << 35) + 3):  # delivered; of no message that is known; of another frame
        desk.subscriber.receive_recovered(encode("p", "s", number, 0, 0, b"9"))
    for other in (("q", "s"), ("p", "t")):
        desk.subscriber.receive_recovered(encode(*other, B + 4, 0, 0, b"9"))
    desk.subscriber.receive_recovered(encode("p", "s", 1 << 35, 0, 0, b"9"))
    desk.subscriber.receive_recovered(b"nothing")
    counts = desk.subscriber.recovery_counts
    assert (counts.again, counts.strange, desk.subscriber.malformed) == (2, 7, 1)
    assert desk.payloads() == [0, 1, 2]
    desk.answer(one)
    assert desk.payloads() == [0, 1, 2, 3, 4, 5]
    desk.subscriber.receive_recovered(replies[1])
    assert desk.payloads() == [0, 1, 2, 3, 4, 5]


def test_without_loss_nothing_is_asked_and_nothing_is_kept():
    desk = Desk()
    one, wire = desk.send(20)
    desk.arrive(wire, *range(20), 19, 3)
    assert desk.asked == []
    assert desk.at_rest()
    assert desk.subscriber._held._runner.record.streams == 0
    assert (desk.row().repeat, len(one.sent)) == (2, 20)


# -- unknown, first, cycle -------------------------------------------------------------------------------


def test_SW_72_what_is_unknown_is_not_asked_for():
    desk = Desk(window=sequence_windows.Window(1, 10 * S))
    one, wire = desk.publisher()
    for subject in "aab":
        one.publish(subject, b"0")
    desk.wall += 20 * S
    one.start_new_streams()
    for _ in range(3):
        one.publish("a", b"1")  # a stream whose first message is lost
    desk.arrive(wire, 0, 2, 4, 5)
    assert [(each.subject, each.verdict, each.unknown) for each in desk.got] == [
        ("a", FIRST, False),
        ("b", FIRST, False),
        ("a", SKIP, True),
        ("a", NEXT, False),
    ]
    assert (desk.asked, desk.subscriber.incomplete_streams, desk.row().unknown) == ([], 0, 1)


def test_a_stream_that_began_anew_after_all_was_forgotten_is_not_asked_for():
    desk = Desk()
    one, wire = desk.publisher(window=sequence_windows.Window(1, 10 * S))
    one.publish("s", b"0")
    one.publish("s", b"1")
    for _ in range(2):
        desk.now += 11 * S
        one.poll()
    desk.wall += 30 * S
    one.publish("s", b"2")
    desk.arrive(wire, 0, 2)
    assert desk.told() == [(0, FIRST, 0, False), (2, CYCLE, 0, False)]
    assert desk.asked == []


# -- frames -------------------------------------------------------------------------------


def frames(desk, *counts, **given):
    """So many messages of each of so many streams, one behind the other by their CHAIN."""
    one, wire = desk.publisher(**given)
    payload = 0
    for count in counts:
        for _ in range(count):
            one.publish("s", b"%d" % payload)
            payload += 1
        desk.wall += 20 * S
        one.start_new_streams()
    return one, wire


def test_SW_73_the_lost_tail_of_a_stream_that_the_next_one_tells_of_is_asked_for():
    desk = Desk()
    one, wire = frames(desk, 4, 3)
    desk.arrive(wire, 0, 1, 4, 5)
    assert desk.payloads() == [0, 1]
    assert [asked_of(each) for each in desk.asked] == [query(B + 3, B + 4)]
    desk.arrive(wire, 6)
    assert desk.payloads() == [0, 1]
    desk.answer(one)
    assert desk.told() == [
        (0, FIRST, 0, False),
        (1, NEXT, 0, False),
        (2, NEXT, 0, True),
        (3, NEXT, 0, True),
        (4, NEXT, 0, False),
        (5, NEXT, 0, False),
        (6, NEXT, 0, False),
    ]
    assert desk.at_rest()


def test_a_tail_that_will_not_come_is_lost_before_the_first_of_the_next_stream():
    desk = Desk()
    one, wire = frames(desk, 5, 2, history=4)
    desk.arrive(wire, 0, 5, 6)
    desk.answer(one)  # it has 3 4 5 6, and 1 2 3 4 were asked for
    assert desk.told() == [
        (0, FIRST, 0, False),
        (3, SKIP, 2, True),
        (4, NEXT, 0, True),
        (5, NEXT, 0, False),
        (6, NEXT, 0, False),
    ]
    desk = Desk()
    one, wire = frames(desk, 5, 2, history=2)
    desk.arrive(wire, 0, 5, 6)
    desk.answer(one)
    assert desk.told()[1:] == [(5, SKIP, 4, False), (6, NEXT, 0, False)]
    assert desk.lost == [sequence_windows.Loss("p", "s", decode(wire[5]).number, 4, False)]
    assert desk.at_rest()


def test_every_stream_asks_for_itself_and_is_handed_over_in_its_turn():
    desk = Desk()
    one, wire = frames(desk, 4, 4, 3)
    desk.arrive(wire, 0, 2, 4, 6, 8, 10)  # a hole and the tail of the first, both of the second, one of the third
    assert len(desk.asked) == 3
    first, second, third = desk.asked
    assert (first.frame < second.frame < third.frame) is True
    desk.answer(one, third)
    desk.answer(one, second)
    assert desk.payloads() == [0]
    desk.answer(one, first)
    assert desk.payloads() == [0, 1, 2]  # its tail was not known when it was asked for
    desk.answer(one)
    assert desk.payloads() == [0, 1, 2, 3, 4, 5, 6]  # nor that of the second
    desk.answer(one, desk.asked[-1])
    assert desk.payloads() == list(range(11))
    assert desk.subscriber.recovery_counts.lost == 0
    assert desk.at_rest()


def test_what_follows_unknown_waits_behind_what_is_asked_for():
    desk = Desk()
    one, wire = frames(desk, 3, 1, 3)
    desk.arrive(wire, 0, 2, 5, 6)  # the second stream, and the first of the third, are lost
    assert desk.payloads() == [0]
    assert len(desk.asked) == 1
    desk.answer(one)
    assert [(int(each.payload), each.verdict, each.lost, each.unknown) for each in desk.got] == [
        (0, FIRST, 0, False),
        (1, NEXT, 0, False),
        (2, NEXT, 0, False),
        (5, SKIP, 1, True),
        (6, NEXT, 0, False),
    ]
    assert (desk.row().lost, desk.row().unknown) == (1, 1)
    assert desk.at_rest()


def test_a_run_that_waits_in_silence_is_not_forgotten():
    desk = Desk(recovery=sequence_windows.Recovery(retention_ms=1))
    one, wire = frames(desk, 3, 4)
    desk.arrive(wire, 0, 2, 3)
    desk.pass_time(50 * MS)
    desk.arrive(wire, 4)
    desk.answer(one)
    assert desk.payloads() == [0, 1, 2, 3, 4]
    assert desk.at_rest()


def test_a_hole_is_known_behind_what_stands_in_the_old_generation():
    desk = Desk(window=sequence_windows.Window(1, 10 * S))
    one, wire = desk.send(6)
    desk.arrive(wire, 0, 1)
    desk.now += 11 * S
    desk.subscriber.poll()
    desk.arrive(wire, 4)
    assert [asked_of(each) for each in desk.asked] == [query(B + 3, B + 4)]
    desk.answer(one)
    assert desk.payloads() == [0, 1, 2, 3, 4]


def test_a_window_that_turns_while_something_is_held_changes_nothing():
    desk = Desk(window=sequence_windows.Window(1, 10 * S), recovery=sequence_windows.Recovery(timeout_ms=3_600_000))
    one, wire = desk.send(9)
    desk.arrive(wire, 0, 2)
    for _ in range(3):
        desk.now += 11 * S
        desk.subscriber.poll()
    assert desk.subscriber.losses().subjects == 0
    desk.arrive(wire, 2, 5, 0)
    assert desk.seen[2:] == [FIRST, SKIP, REPEAT]
    assert (desk.payloads(), desk.row().repeat) == ([0], 2)
    desk.answer(one, desk.asked[0])
    desk.answer(one)
    assert desk.told()[1:] == [(n, NEXT, 0, n not in (2, 5)) for n in range(1, 6)]
    assert desk.at_rest()


# -- bounds -------------------------------------------------------------------------------


def test_SW_74_without_a_place_it_is_as_without_recovery():
    desk = Desk(recovery=sequence_windows.Recovery(sources=1))
    one, wire = desk.send(6)
    other, more = desk.send(6, name="q")
    desk.arrive(wire, 0, 2)
    desk.arrive(more, 0, 2, 3, 5)
    assert [(each.publisher, int(each.payload), each.verdict, each.lost) for each in desk.got] == [
        ("p", 0, FIRST, 0),
        ("q", 0, FIRST, 0),
        ("q", 2, SKIP, 1),
        ("q", 3, NEXT, 0),
        ("q", 5, SKIP, 1),
    ]
    assert (desk.subscriber.recovery_counts.no_place, len(desk.asked)) == (2, 1)
    desk.answer(one)
    desk.got.clear()
    other.publish("s", b"6")
    other.publish("s", b"7")
    desk.arrive(more, 7)
    assert desk.subscriber.incomplete_streams == 1
    desk.answer(other)
    assert desk.payloads() == [6, 7]


def test_a_stream_that_follows_and_finds_no_place_ends_the_waiting():
    desk = Desk(recovery=sequence_windows.Recovery(sources=1))
    _, wire = frames(desk, 3, 2)
    desk.arrive(wire, 0, 2, 3, 4)
    assert desk.told() == [(0, FIRST, 0, False), (2, SKIP, 1, False), (3, NEXT, 0, False), (4, NEXT, 0, False)]
    assert desk.subscriber.recovery_counts.given_up == 1
    assert desk.at_rest()
    desk = Desk(recovery=sequence_windows.Recovery(sources=1))
    _, wire = frames(desk, 3, 2)
    desk.arrive(wire, 0, 3, 4)  # a tail needs two
    assert desk.told() == [(0, FIRST, 0, False), (3, SKIP, 2, False), (4, NEXT, 0, False)]
    assert (desk.subscriber.recovery_counts.no_place, desk.asked) == (1, [])


def test_what_is_held_is_bounded_in_bytes():
    desk = Desk(held_bytes_max=3_000)
    one, wire = desk.publisher()
    for number in range(12):
        one.publish("s", b"%0500d" % number)
    desk.arrive(wire, 0, 2, 3)
    assert desk.payloads() == [0]
    assert 2 * 1_000 < desk.subscriber._held.bytes <= 3_000
    desk.arrive(wire, 4)
    assert desk.told() == [(0, FIRST, 0, False), (2, SKIP, 1, False), (3, NEXT, 0, False), (4, NEXT, 0, False)]
    assert desk.subscriber.recovery_counts.given_up == 1
    assert desk.at_rest()
    desk.arrive(wire, 6)
    desk.subscriber.close_query(desk.asked[0], True)  # of what is given up
    assert desk.payloads() == [0, 2, 3, 4]
    desk.answer(one)
    assert desk.payloads() == [0, 2, 3, 4, 5, 6]
    assert desk.at_rest()


def test_what_is_held_is_bounded_in_messages_by_the_machine():
    desk = Desk(recovery=sequence_windows.Recovery(pending=2))
    _, wire = desk.send(9)
    desk.arrive(wire, 0, 2, 4, 6)
    assert desk.told() == [(0, FIRST, 0, False), (2, SKIP, 1, False)]
    desk = Desk(recovery=sequence_windows.Recovery(pending=0))
    desk.arrive(wire, 0, 2)
    assert desk.told() == [(0, FIRST, 0, False), (2, SKIP, 1, False)]
    assert (desk.asked, desk.at_rest()) == ([], True)


def test_a_loss_of_nearly_all_numbers_costs_nothing():
    desk = Desk()
    far = B + (1 << 35) - 5
    desk.subscriber.receive(encode("p", "s", B + 1, 0, 0, b"0"))
    desk.subscriber.receive(encode("p", "s", far, 0, 0, b"1"))
    assert [asked_of(each) for each in desk.asked] == [query(B + 2, far - 1)]
    desk.subscriber.close_query(desk.asked[0], True)
    assert desk.told() == [(0, FIRST, 0, False), (1, SKIP, 32_767, False)]
    assert desk.subscriber.recovery_counts.lost == far - B - 2
    assert desk.row().lost == 32_767
    assert desk.at_rest()


def test_names_of_publishers_and_subjects_never_meet():
    desk = Desk()
    names = [
        ("a b", "c"),
        ("a", "b c"),
        ("a\0b", "c"),
        ("a", "b\0c"),
        ("1 a", "b"),
        ("1", "a b"),
        ("*", "s"),
        ("p", "*"),
    ]
    for publisher, subject in names:
        desk.subscriber.receive(encode(publisher, subject, B + 1, 0, 0, b"0"))
        desk.subscriber.receive(encode(publisher, subject, B + 3, 0, 0, b"2"))
    assert [asked_of(each)[:2] for each in desk.asked] == names
    assert len({each.run for each in desk.asked}) == len(names)
    for publisher, subject in reversed(names):
        desk.subscriber.receive_recovered(encode(publisher, subject, B + 2, 0, 0, b"1"))
    assert [(each.publisher, each.subject) for each in desk.got[len(names) :: 2]] == names[::-1]
    assert desk.at_rest()


# -- the application -------------------------------------------------------------------------------


def test_SW_75_unsubscribe_drops_what_is_held():
    desk = Desk(everything=False)
    desk.subscriber.subscribe("s")
    desk.subscriber.subscribe("t")
    one, wire = desk.send(9)
    _, more = desk.send(4, "t", name="q")
    desk.arrive(wire, 0, 3)
    desk.arrive(more, 0, 2)
    desk.subscriber.unsubscribe("s")
    assert desk.subscriber.incomplete_streams == 1
    desk.answer(one, desk.asked[0])
    assert desk.payloads() == [0, 0]
    assert desk.subscriber.recovery_counts.strange == 2
    desk.arrive(wire, 4)
    desk.subscriber.subscribe("s")
    desk.arrive(wire, 3, 5)
    assert desk.told()[2:] == [(3, FIRST, 0, False)]
    old, _, new = desk.asked
    desk.subscriber.close_query(old, True)  # a query of before: it says nothing of this stream
    assert desk.payloads() == [0, 0, 3]
    desk.answer(one, new)
    assert desk.payloads() == [0, 0, 3, 4, 5]
    assert [row.lost for row in desk.subscriber.losses().rows] == [0] * len(desk.subscriber.losses().rows)


def test_an_answer_may_come_within_the_question():
    desk = Desk()
    one, wire = desk.send(9)
    depth = []

    def ask(query):
        depth.append(desk.payloads())
        for data in one.answer(query):
            assert desk.subscriber.receive_recovered(data) is None
        desk.subscriber.close_query(query, True)
        assert desk.payloads() == depth[-1]  # nothing has been entered again

    desk.subscriber._held._ask = ask
    given = desk.arrive(wire, 0, 3, 4, 8)
    assert [int(each.payload) for each in given] == [0, 3, 4, 8]
    assert desk.payloads() == list(range(9))
    assert len(depth) == 2
    assert desk.at_rest()


def test_the_application_may_speak_within_a_delivery():
    desk = Desk(everything=False)
    desk.subscriber.subscribe("s")
    one, wire = desk.send(9)
    got = []

    def deliver(each):
        got.append(int(each.payload))
        if got[-1] == 2:
            desk.subscriber.receive(wire[5])
            desk.subscriber.receive(wire[6])
            desk.subscriber.poll()
        if got[-1] == 3:
            desk.subscriber.unsubscribe("s")

    desk.subscriber._deliver = deliver
    desk.arrive(wire, 0, 3, 4)
    desk.answer(one)
    assert got == [0, 1, 2, 3]
    assert desk.at_rest()


def within_a_delivery(desk, act):
    """Something of another publisher is filled in, and in the delivery of it this happens."""
    other, more = desk.send(3, name="other")
    desk.arrive(more, 0, 2)
    kept = desk.subscriber._deliver

    def deliver(each):
        kept(each)
        if (each.publisher, each.payload) == ("other", b"1"):
            act()

    desk.subscriber._deliver = deliver
    desk.answer(other)
    desk.got[:] = [each for each in desk.got if each.publisher != "other"]


def test_what_comes_within_a_delivery_keeps_its_order():
    desk = Desk()
    one, wire = desk.send(6)
    desk.arrive(wire, 0)
    within_a_delivery(desk, lambda: desk.arrive(wire, 2, 3))
    assert desk.payloads() == [0]
    desk.answer(one)
    assert desk.told() == [(0, FIRST, 0, False), (1, NEXT, 0, True), (2, NEXT, 0, False), (3, NEXT, 0, False)]


def test_what_has_come_before_it_could_be_asked_for_is_not_asked_for():
    desk = Desk()
    one, wire = frames(desk, 3, 4)
    desk.arrive(wire, 0, 2)
    within_a_delivery(desk, lambda: desk.arrive(wire, 3, 5, 4))
    (asked,) = [each for each in desk.asked if each.publisher == "p"]
    desk.answer(one, asked)
    assert desk.payloads() == [0, 1, 2, 3, 4, 5]
    assert desk.at_rest()


def test_what_a_callback_raises_comes_out_when_all_is_done():
    desk = Desk()
    one, wire = desk.send(6, history=2)
    got = []

    def deliver(each):
        got.append(int(each.payload))
        raise OSError(got[-1])

    desk.subscriber._deliver = deliver
    with pytest.raises(OSError, match="0"):
        desk.arrive(wire, 0)
    desk.arrive(wire, 5)
    with pytest.raises(OSError, match="4"):
        desk.answer(one)
    assert got == [0, 4, 5]
    assert [each.lost for each in desk.lost] == [3]
    assert desk.subscriber.failed == 3
    assert desk.at_rest()


def test_a_question_that_cannot_be_sent_is_asked_again():
    desk = Desk()
    one, wire = desk.send(4)
    asked = []

    def ask(query):
        asked.append(query)
        if len(asked) == 1:
            raise OSError("no way")

    desk.subscriber._held._ask = ask
    with pytest.raises(OSError, match="no way"):
        desk.arrive(wire, 0, 3)
    assert desk.payloads() == [0]
    desk.pass_time(200 * MS)
    desk.answer(one, asked[1])
    assert desk.payloads() == [0, 1, 2, 3]


def test_the_deadline_is_that_of_the_query_or_of_the_advisory():
    desk = Desk()
    one, wire = desk.send(9, history=1)
    assert desk.subscriber.deadline() is None
    desk.arrive(wire, 0, 4)
    assert desk.subscriber.deadline() == 100 * MS
    desk.now = 50 * MS
    desk.answer(one)
    assert desk.subscriber.deadline() == 50 * MS + S  # an advisory was made, and a second runs
    desk.arrive(wire, 6)
    assert desk.subscriber.deadline() == 150 * MS


def test_recovery_needs_a_way_back():
    for given in ({"recovery": QUICK}, {"ask": print}):
        with pytest.raises(ConfigurationError, match="UDP multicast"):
            sequence_windows.SequencedSubscriber(print, **given)
    for key, wrong in (("past", True), ("period_ms", 5)):
        with pytest.raises(ConfigurationError) as error:
            sequence_windows.SequencedSubscriber(print, recovery=sequence_windows.Recovery(**{key: wrong}), ask=print)
        assert error.value.key == key
    with pytest.raises(ConfigurationError, match="held_bytes_max"):
        sequence_windows.SequencedSubscriber(print, recovery=QUICK, ask=print, held_bytes_max=0)
    plain = sequence_windows.SequencedSubscriber(print)
    assert plain.incomplete_streams == 0
    for act in (lambda: plain.receive_recovered(b""), lambda: plain.recovery_counts):
        with pytest.raises(ConfigurationError, match="not attached"):
            act()


# -- what a publisher keeps -------------------------------------------------------------------------------


def asks(first, last, subject="s", publisher="p"):
    return sequence_windows.RecoveryQuery(publisher, subject, first, last)


def test_SW_76_a_publisher_keeps_the_newest_of_each_subject():
    desk = Desk()
    one, wire = desk.publisher(history=3)
    for number in range(5):
        one.publish("s", b"%d" % number)
    one.publish("t", b"0")
    assert one.answer(asks(B + 1, B + 5)) == wire[2:5]
    assert one.answer(asks(B + 4, B + 4)) == wire[3:4]
    assert one.answer(asks(B + 5, B + 90)) == wire[4:5]
    assert one.answer(asks(B + 1, B + 2)) == []
    assert one.answer(asks(B + 1, B + 1, "t")) == wire[5:]
    assert one.answer(asks(B + 1, B + 9, "u")) == []
    assert one.answer(asks(B + 1, B + 9, publisher="q")) == []
    assert one.answer(asks(B + 5, B + 1)) == []
    assert one.answer(asks(B + 4, B + (2 << 35))) == []
    assert one.answer(asks(0, B + 5)) == []
    assert (len(one.sent), one.sent.subjects, one.sent.pushed_out) == (4, 2, 0)


def test_what_is_kept_goes_over_frames():
    desk = Desk()
    one, wire = frames(desk, 3, 2, history=4)
    numbers = [decode(each).number for each in wire]
    assert one.answer(asks(numbers[0], numbers[2])) == wire[1:3]
    assert one.answer(asks(numbers[3], numbers[4])) == wire[3:5]


def test_what_is_kept_is_bounded_in_bytes_and_subjects():
    desk = Desk()
    one, _ = desk.publisher(history=9, history_subjects=2)
    for subject in ("a", "b", "a", "c"):
        one.publish(subject, b"")
    assert [len(one.answer(asks(B + 1, B + 9, name))) for name in "abc"] == [2, 0, 1]
    assert (one.sent.subjects, one.sent.pushed_out) == (2, 1)
    size = one.sent.bytes // 3
    one, _ = desk.publisher(history=9, history_bytes=3 * size)
    for subject in ("a", "b", "a", "a", "c"):
        one.publish(subject, b"")
    assert [len(one.answer(asks(B + 1, B + 9, name))) for name in "abc"] == [2, 0, 1]
    assert (one.sent.bytes <= 3 * size, len(one.sent), one.sent.subjects, one.sent.pushed_out) == (True, 3, 2, 2)
    for key in ("history", "history_bytes", "history_subjects"):
        with pytest.raises(ConfigurationError) as error:
            desk.publisher(**{"history": 1, key: -1})
        assert error.value.key == key


@pytest.mark.parametrize(("less", "left"), [(0, 3), (1, 2)])
def test_bytes_that_are_kept_may_be_as_many_as_may_be(less, left):
    desk = Desk()
    size = desk.send(3)[0].sent.bytes
    assert len(desk.send(3, history_bytes=size - less)[0].sent) == left


def test_nothing_is_kept_by_itself():
    desk = Desk()
    one, _ = desk.send(5, history=0)
    assert one.sent is None
    assert one.answer(asks(B + 1, B + 5)) == []


def test_what_could_not_be_sent_can_be_asked_for():
    desk = Desk()
    sent = []

    def send(data):
        if len(sent) == 1:
            sent.append(b"")
            raise OSError("full")
        sent.append(data)

    one = sequence_windows.SequencedPublisher(send, publisher="p", history=9, **desk.clocks)
    one.publish("s", b"0")
    with pytest.raises(OSError, match="full"):
        one.publish("s", b"1")
    one.publish("s", b"2")
    desk.arrive(sent, 0, 2)
    desk.answer(one)
    assert desk.payloads() == [0, 1, 2]
    gc.collect()
