"""The worked numbers of sequence windows, to the digit (spec/sequence_windows/scenarios.md).

Publishers and a receiver under losses, copies, rotations, restarts and clocks that step, against a judge that knows.

MONO, ONCE, EXACT, NOFALSE, DETECT and CROWD in FIFO runs; MONO and ONCE where messages overtake each other; THROTTLE
and NOTIFY of the notifier (spec/sequence_windows/properties.md); JOIN is explored.

The observers of the properties: each property is broken by one run, and not by one near it.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_judge import Judge
from msgspec.structs import replace

from statemachines.kernel import Node, Tell
from statemachines.sequence_windows import late_join, loss_notifier, sequence
from statemachines.sequence_windows.inbox_window import INBOX_WINDOW, Inboxed, InboxJudged, InboxWindowRecord
from statemachines.sequence_windows.late_join import Join
from statemachines.sequence_windows.loss_notifier import (
    LISTED,
    LOSS_NOTIFIER,
    LOST_MAX,
    Advisory,
    LossNotifierRecord,
    Lost,
)
from statemachines.sequence_windows.losses import Losses, LossPeer, table
from statemachines.sequence_windows.message import LOSS_MAX, Judged, Numbered, Verdict
from statemachines.sequence_windows.properties import PROPERTIES
from statemachines.sequence_windows.properties.advised_losses import AdvisedLosses
from statemachines.sequence_windows.properties.heard_messages import (
    ArrivedMessage,
    HeardMessages,
    judge_answered,
    judge_join,
    judge_limit,
    judge_ranges,
    remember_publisher,
)
from statemachines.sequence_windows.properties.names import CONTENT
from statemachines.sequence_windows.properties.published_numbers import PublishedNumbers
from statemachines.sequence_windows.publisher_table import FramesUsedUp, PublisherTable
from statemachines.sequence_windows.publisher_window import Stamped
from statemachines.sequence_windows.rotation import Window
from statemachines.sequence_windows.sequence import BASE_MAX
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines.sequence_windows.subscriber_table import SubscriberTable

S = 1_000_000_000
MS = 1_000_000
T = 1659131646 * S
F = 193148344
B = 0x5C19ADC000000000
FIRST, NEXT, SKIP, CYCLE, REPEAT, NOT_SUBSCRIBED = Verdict
SUBJECT = "RSF.REC.PAC.NaE"


def publisher(size=4 << 20):
    return PublisherTable(Window(size), 0)


def receiver(*subjects, size=4 << 20):
    table = SubscriberTable(Window(size), 0)
    for subject in subjects or (SUBJECT,):
        table.subscribe(subject)
    return table


def hear(table, number, *, chain=0, time_ns=0, subject=SUBJECT, who="p"):
    """What one message is: its verdict, and its loss (None: unknown)."""
    told = table.receive_one(subject, who, number, time_ns, chain, T)
    return (told.verdict, None) if told.unknown else (told.verdict, told.lost)


def heard(table, *bases):
    """The verdicts and losses of F.n, one after the other."""
    return [hear(table, B + base) for base in bases]


def test_SW_01_the_numbers_of_the_source():
    assert T == 0x17066B710B706C00
    assert sequence.first_of(T) == 0x5C19ADC000000001
    assert (sequence.frame_at(T), sequence.start_of(F)) == (F, 1659131641513115648)
    assert sequence.first_of(1659131641513115648) == 0x5C19ADC000000001
    assert sequence.first_of(1659131641513115647) == 0x5C19ADB800000001
    assert sequence.first_of(1659131650103050240) == 0x5C19ADC800000001
    assert sequence.first_of(1659131650103050239) == 0x5C19ADC000000001
    assert (sequence.frame_of(B + 1), sequence.base_of(B + 1), sequence.number_of(F, 1)) == (F, 1, B + 1)
    assert sequence.first_of(0) == sequence.first_of(-5) == sequence.number_of(1, 1)


def test_SW_09_at_the_end_of_29_bits_nothing_is_numbered():
    last_ns = 2**62 - 1
    assert (sequence.frame_at(last_ns), sequence.first_of(last_ns)) == (sequence.FRAME_MAX, 0xFFFFFFF800000001)
    one = publisher()
    assert one.stamp("s", last_ns) == Stamped(sequence.FRAME_MAX, 1, 1, last_ns)
    for subject in ("new", "other"):
        with pytest.raises(FramesUsedUp, match="no frame is left"):
            one.stamp(subject, 2**62)
    assert one.stamp("s", 2**62) == Stamped(sequence.FRAME_MAX, 2, 2)
    assert one.stamp_many("s", sequence.BASE_MAX - 2, 2**62) == (Stamped(sequence.FRAME_MAX, 3, sequence.BASE_MAX),)
    with pytest.raises(FramesUsedUp):
        one.stamp("s", 2**62)
    assert one.record("s").last == sequence.number_of(sequence.FRAME_MAX, sequence.BASE_MAX)


def test_SW_03_SW_04_three_messages_and_two_subjects():
    one = publisher()
    told = [one.stamp(SUBJECT, T + later * S) for later in (0, 1, 20)]
    assert [each.number for each in told] == [B + 1, B + 2, B + 3]
    assert [(each.time_ns, each.chain) for each in told] == [(T, 0), (0, 0), (0, 0)]
    assert one.stamp("another", T).number == B + 1


@pytest.mark.parametrize(("base", "loss"), [(32768, 32766), (32769, 32767), (32770, 32767), (40001, 32767)])
def test_SW_29_a_loss_has_a_cap(base, loss):
    assert heard(receiver(), 1, base) == [(FIRST, 0), (SKIP, loss)]


def test_SW_21_SW_24_a_late_join():
    assert heard(receiver(), 7, 10, 12) == [(FIRST, 0), (SKIP, 2), (SKIP, 1)]


def flips(table, seconds=31):
    """The times of the flips, in ticks of 10 ms."""
    return [tick for tick in range(1, seconds * 100) if table.tick(tick * 10 * MS)]


def test_SW_19_SW_20_unsubscribe_and_subscribe():
    one = receiver()
    heard(one, 1, 2)
    one.unsubscribe(SUBJECT)
    assert hear(one, B + 3) == (NOT_SUBSCRIBED, 0)
    one.subscribe(SUBJECT)
    assert hear(one, B + 9) == (FIRST, 0)
    assert hear(one, B + 10) == (NEXT, 0)


def test_SW_50_SW_51_SW_52_an_inbox():
    record, told = InboxWindowRecord("peer"), []
    for number in (9, 10, 13, 13, 12, 14):
        step = INBOX_WINDOW.step(record, Inboxed(number), 0)
        record = step.record
        told += [effect.event for effect in step.effects]
    assert [one.new for one in told] == [True, True, True, False, False, True]
    assert sum(one.lost for one in told) == 2
    assert told[2] == InboxJudged(True, 2)


class Client:
    """A notifier, and what it told when."""

    def __init__(self):
        self.node = Node(
            loss_notifier.LOSS_NOTIFIER, loss_notifier.LossNotifierRecord("c"), name="c", now_ns=0, check=True
        )
        self.told = []

    def until(self, now_ns):
        while (deadline := self.node.deadline()) is not None and deadline <= now_ns:
            self.keep(self.node.fire(deadline), deadline)

    def lose(self, now_ns, *losses):
        self.until(now_ns)
        self.keep(self.node.feed(loss_notifier.Lost(losses), now_ns), now_ns)

    def keep(self, effects, now_ns):
        self.told += [(now_ns / S, effect.event) for effect in effects if isinstance(effect, Tell)]


def test_SW_40_SW_41_SW_42_SW_43_losses_are_advised_once_a_second():
    one = Client()
    for at_ms, count in ((0, 1), (300, 2), (900, 1), (2500, 5)):
        one.lose(at_ms * MS, ("s", count))
    one.until(100 * S)
    assert [(at, each.lost) for at, each in one.told] == [(0.0, 1), (1.0, 3), (2.5, 5)]


SOURCE = """\
user | repeat | rep time | not sub | not time |  msg loss |   loss time  | ibx loss | ibx time
-----+--------+----------+---------+----------+-----------+--------------+----------+---------
 B.1 |      0 |          |       0 |          |         0 |              |        0 |         
 D.3 |      0 |          |       0 |          |       766 | 20:42:24.431 |        0 |         
 C.4 |      0 |          |       0 |          |         0 |              |        0 |         """


def test_SW_61_the_table_of_the_source():
    peers = [
        LossPeer("C.4"),
        LossPeer("D.3", lost=766, lost_ns=(20 * 3600 + 42 * 60 + 24) * S + 431 * MS),
        LossPeer("B.1"),
    ]
    assert table(peers) == SOURCE


def test_SW_30_a_peer_is_counted():
    losses = Losses()
    for told in (
        Judged(REPEAT, F, 1, 3),
        Judged(NOT_SUBSCRIBED, F, 4, 4),
        Judged(SKIP, F, 9, 9, 4),
        Judged(SKIP, F, 9, 9, 1, True),
        Judged(NEXT, F, 10, 10),
    ):
        losses.of("p").count(told, T)
    losses.of("p").count_inbox(InboxJudged(True, 2), T)
    (row,) = losses.rows()
    assert row == LossPeer("p", 3, T, 1, T, 5, T, 1, 2, T)


def test_SW_31_SW_32_SW_33_SW_34_a_first_message_is_verified_by_its_frame():
    record, told = late_join.LateJoinRecord(), []

    def joined(frame, t_ns=T + 100 * S):
        (effect,) = late_join.LATE_JOIN.step(record, late_join.Joined(frame, t_ns), 0).effects
        assert isinstance(effect.event, late_join.Joining)
        told.append(effect.event.join)

    joined(F + 1)
    record = late_join.LATE_JOIN.step(record, late_join.Converged(T), 0).record
    joined(F + 1)
    joined(F)
    joined(F - 1)
    joined(F + 1, T)
    joined(F + 2, T)
    assert told == [
        late_join.Join.UNKNOWN,
        late_join.Join.VERIFIED,
        late_join.Join.UNVERIFIED,
        late_join.Join.UNVERIFIED,
        late_join.Join.VERIFIED,
        late_join.Join.UNKNOWN,
    ]


class Play:
    """Two publishers and a receiver; every move is drawn by `chance`."""

    def __init__(self, chance, fifo=True):
        self.chance, self.fifo = chance, fifo
        places = chance.choice((0, 2))
        self.judge = Judge(ordered=fifo, places=places)
        self.now, self.wall = 0, T
        self.lives = {"p": 0, "q": 0}
        self.tables = {"p": PublisherTable(Window(1), 0), "q": PublisherTable(Window(100), 0)}
        self.receiver = SubscriberTable(
            Window(chance.choice((1, 10**9))), 0, everything=True, publishers_max=places or PLACES
        )
        self.wire = []
        self.old = []

    def move(self):
        (kind,) = self.chance.choices(*zip(*MOVES.items(), strict=True))
        getattr(self, kind)()

    def publish(self, count=1):
        node, subject = self.chance.choice("pq"), self.chance.choice("xyz")
        table, who = self.tables[node], f"{node}{self.lives[node]}"
        if table.record(subject).status.value == "absent":
            self.judge.forgot(who, subject)
        for told in table.stamp_many(subject, count, self.wall):
            size = told.last - told.first + 1
            ordinal = self.judge.publish(who, subject, told.number, told.number + size - 1)
            if size == 1:
                event = Numbered(told.frame, told.first, told.last, told.time_ns, told.chain)
                self.wire.append((who, subject, ordinal, event))

    def burst(self):
        """Very many, all of which are lost; a base is nearly used up by them, or just."""
        self.publish(self.chance.choice((3, 40_000, BASE_MAX - 3, BASE_MAX - 1)))

    def hand_over(self):
        if self.wire:
            at = 0 if self.fifo else self.chance.randrange(len(self.wire))
            self.receive(self.wire.pop(at))

    def lose(self):
        if self.wire:
            self.wire.pop(self.chance.randrange(len(self.wire)))

    def copy(self):
        if self.wire:
            self.receive(self.wire[0])

    def replay(self):
        """Somebody sends again what came long ago; a receiver that has forgotten the stream cannot know it."""
        if self.old:
            who, subject, *rest = self.chance.choice(self.old)
            if (who, subject) in self.judge.heard and self.judge.heard[who, subject].known:
                self.receive((who, subject, *rest))

    def receive(self, one):
        who, subject, ordinal, event = one
        (told,) = self.receiver.receive(subject, who, event, self.wall)
        self.judge.receive(who, subject, ordinal, event, told)
        self.old.append(one)

    def tick(self):
        self.now += self.chance.choice((1, 5, 11)) * S
        self.wall += self.chance.choice((1, 5, 11)) * S
        for one in self.tables.values():
            one.tick(self.now)
        if self.receiver.tick(self.now):
            self.judge.flip()

    def converge(self):
        for one in self.tables.values():
            one.converge(self.wall)

    def step_clock(self):
        self.wall += self.chance.choice((-3600, -9, 9, 3600)) * S

    def restart(self):
        node = self.chance.choice("pq")
        self.lives[node] += 1
        self.tables[node] = PublisherTable(Window(1), self.now)

    def unsubscribe(self):
        subject = self.chance.choice("xyz")
        self.receiver.unsubscribe(subject)
        self.receiver.subscribe(subject)
        self.judge.forget(subject)


MOVES = {"publish": 30, "hand_over": 32, "lose": 6, "copy": 3, "replay": 2, "tick": 4, "converge": 2, "step_clock": 4,
         "restart": 1, "unsubscribe": 1, "burst": 2}  # fmt: skip


def play(seed, fifo=True, moves=400):
    one = Play(random.Random(seed), fifo)
    for _ in range(moves):
        one.move()
    return one.judge


@given(st.lists(st.tuples(st.integers(0, 3_000), st.sampled_from("abc"), st.integers(1, 50)), max_size=25))
@settings(max_examples=100, deadline=None)
def test_SW_40_to_SW_44_THROTTLE_and_NOTIFY(losses):
    """Advisories are at least a second apart, their sum is the sum of losses, and none comes later than a second."""
    node = Node(LOSS_NOTIFIER, LossNotifierRecord("c"), name="c", now_ns=0, check=True)
    now, told, advised, broken = 0, 0, AdvisedLosses(), []

    def keep(effects, at):
        nonlocal told, advised
        broken.extend(advised.judge_wait(at, S))
        for effect in effects:
            if isinstance(effect, Tell):
                told += effect.event.lost
                advised, found = advised.observe(effect.event, at, at, S)
                broken.extend(found)
        broken.extend(advised.judge_count(node.record.lost))

    def until(at):
        while (deadline := node.deadline()) is not None and deadline <= at:
            keep(node.fire(deadline), deadline)

    for after_ms, subject, count in losses:
        now += after_ms * 1_000_000
        until(now)
        lost = ((subject, count),)
        advised = advised.lose(lost, now).settle_newest()
        keep(node.feed(Lost(lost), now), now)
    until(now + 100 * S)
    assert broken == []
    assert advised.since is None
    assert told == sum(count for *_, count in losses)


KNOWN = HeardMessages(arrived=3, delivered=3, known=True)
SECOND = 1_000


def names(broken):
    return [one.name for one in broken]


def say(verdict, lost=0, unknown=False):
    return Judged(Verdict[verdict], 1, 1, 1, lost, unknown)


def judge(heard, message, *told):
    return names(heard.observe(message, say(*told))[1])


def test_every_property_is_broken_by_a_test_here():
    tests = {name.split("_")[1] for name in globals() if name.startswith("test_")}
    assert set(PROPERTIES) <= tests


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_MONO_a_number_is_above_all_before_it():
    numbered, broken = PublishedNumbers().observe(5, 7)
    assert (numbered, broken) == (PublishedNumbers(3, 7), ())
    assert numbered.observe(8, 8)[1] == ()
    assert names(numbered.observe(7, 8)[1]) == names(numbered.observe(9, 8)[1]) == ["MONO"]


# -- what is heard --------------------------------------------------------------------------------------------------


def test_ONCE_what_was_delivered_is_a_repeat_and_nothing_else_is():
    again, new = ArrivedMessage(3, 3), ArrivedMessage(4, 4)
    assert judge(KNOWN, again, "REPEAT") == judge(KNOWN, new, "NEXT") == []
    assert judge(KNOWN, again, "NEXT") == judge(KNOWN, new, "REPEAT") == ["ONCE"]
    assert judge(KNOWN, ArrivedMessage(3, 4), "REPEAT") == ["ONCE"]


def test_ONCE_where_messages_overtake_each_other_what_was_not_delivered_may_be_late():
    heard, _ = replace(KNOWN, ordered=False).observe(ArrivedMessage(5, 5, 1), say("SKIP", 1))
    late, broken = heard.observe(ArrivedMessage(4, 4), say("NEXT"))
    assert (broken, late.delivered) == ((), 5)
    assert judge(late, ArrivedMessage(4, 4), "NEXT") == ["ONCE"]
    assert late.forget() == HeardMessages(arrived=5, ordered=False)


def test_ONCE_what_is_not_wanted_is_not_delivered_and_who_is_not_known_is_first():
    unwanted = ArrivedMessage(4, 4, wanted=False)
    assert judge(KNOWN, unwanted, "NOT_SUBSCRIBED") == judge(HeardMessages(), ArrivedMessage(0, 0), "FIRST") == []
    assert judge(KNOWN, unwanted, "NEXT") == judge(KNOWN, ArrivedMessage(4, 4), "NOT_SUBSCRIBED") == ["ONCE"]
    assert judge(KNOWN.forget(), ArrivedMessage(4, 4), "NEXT") == ["ONCE"]


def test_ONCE_each_message_of_a_range_is_judged_once():
    event = Numbered(1, 2, 4)
    parts = (Judged(Verdict.REPEAT, 1, 2, 2), Judged(Verdict.NEXT, 1, 3, 4))
    assert judge_ranges(event, parts) == ()
    assert names(judge_ranges(event, parts[::-1])) == names(judge_ranges(event, parts[:1])) == ["ONCE"]


def test_EXACT_a_loss_is_what_was_missed_or_the_cap():
    some, many = ArrivedMessage(6, 6, 2), ArrivedMessage(10**6, 10**6, LOSS_MAX + 1)
    assert judge(KNOWN, some, "SKIP", 2) == judge(KNOWN, some, "SKIP", 1, True) == []
    assert judge(KNOWN, many, "SKIP", LOSS_MAX) == []
    assert judge(KNOWN, some, "SKIP", 1) == judge(KNOWN, many, "SKIP", LOSS_MAX + 1) == ["EXACT"]
    assert judge(KNOWN, some, "SKIP", 2, True) == ["EXACT"]


def test_NOFALSE_a_loss_is_told_where_something_was_missed():
    assert judge(KNOWN, ArrivedMessage(5, 5, 1), "SKIP", 1, True) == []
    assert judge(KNOWN, ArrivedMessage(4, 4), "SKIP", 1, True) == ["NOFALSE"]
    assert judge(KNOWN, ArrivedMessage(4, 4), "NEXT", 1) == ["NOFALSE"]


def test_DETECT_what_was_missed_is_told_but_for_what_its_publisher_has_forgotten():
    missed = ArrivedMessage(6, 6, 2, cut=4)
    assert judge(KNOWN, missed, "CYCLE") == judge(KNOWN, missed, "SKIP", 2) == []
    assert judge(KNOWN, missed, "NEXT") == judge(KNOWN, ArrivedMessage(4, 4), "FIRST") == ["DETECT"]
    assert judge(KNOWN, replace(missed, cut=3), "CYCLE") == judge(KNOWN, replace(missed, cut=7), "CYCLE") == ["DETECT"]


def test_DETECT_something_is_said_of_each_message_and_a_limit_that_is_shown_hides_some():
    kept = (judge_answered(True, 1), judge_limit("a", "", 9), judge_limit("a", "a", 1), judge_limit("b", "a", 0))
    assert kept == ((), (), (), ())
    for broken in (judge_answered(False, 1), judge_limit("b", "a", 1), judge_limit("a", "a", 0)):
        assert names(broken) == ["DETECT"]


def test_CROWD_who_was_forgotten_for_others_is_told_of():
    gone, message = KNOWN.displace(), ArrivedMessage(4, 4, crowded=True)
    assert judge(gone, message, "FIRST", 1, True) == judge(gone, replace(message, begins=True), "FIRST") == []
    assert judge(gone, message, "FIRST") == ["CROWD"]
    assert judge(KNOWN.forget(), message, "FIRST") == []


def test_NOFALSE_nobody_was_forgotten_where_there_is_room_or_a_stream_begins():
    message = ArrivedMessage(4, 4, crowded=True)
    for other in (replace(message, crowded=False), replace(message, begins=True)):
        assert judge(KNOWN.displace(), other, "FIRST", 1, True) == ["NOFALSE"]


def test_who_was_silent_longest_is_forgotten_for_others():
    assert remember_publisher(("p", "q"), "p", 2) == (("q", "p"), "")
    assert remember_publisher(("q", "p"), "r", 2) == (("p", "r"), "q")
    assert remember_publisher((), "p", 0) == ((), "")


def test_JOIN_of_a_verified_stream_nothing_is_missing():
    assert judge_join(Join.VERIFIED, 0) == judge_join(Join.UNVERIFIED, 1) == judge_join(Join.UNKNOWN, 1) == ()
    assert names(judge_join(Join.VERIFIED, 1)) == ["JOIN"]


# -- advisories -----------------------------------------------------------------------------------------------------


def advise(advised, told, at=SECOND, content="THROTTLE"):
    advised, broken = advised.observe(told, at, at, SECOND, content)
    return advised, names(broken)


def test_THROTTLE_advisories_are_a_second_apart_and_say_what_waits():
    lost = AdvisedLosses(advised_at=0).lose((("s", 2),), 10).lose((("t", 1),), 20).settle_newest()
    whole = Advisory(3, 2, (("s", 2), ("t", 1)))
    assert advise(lost, whole) == (AdvisedLosses(advised_at=SECOND), [])
    assert advise(lost, whole, SECOND - 1)[1] == ["THROTTLE"]
    for wrong in (Advisory(2, 1, (("s", 2),)), Advisory(3, 1, (("s", 3),)), Advisory(3, 2, ()), Advisory(0, 0, ())):
        assert advise(lost, wrong)[1] == ["THROTTLE"]
        assert advise(lost, wrong, content=CONTENT)[1] == ["CONTENT"]
    assert advise(AdvisedLosses(), Advisory(0, 0, ()))[1] == ["THROTTLE"]


def test_THROTTLE_the_loss_of_the_message_that_is_handled_may_come_with_the_next_advisory():
    lost = AdvisedLosses().lose((("s", 2),), 10).lose((("s", 1),), 20)
    assert advise(lost, Advisory(3, 1, (("s", 3),))) == (AdvisedLosses(advised_at=SECOND), [])
    after, broken = advise(lost, Advisory(2, 1, (("s", 2),)))
    assert (broken, after.waits, after.since) == ([], (("s", 1),), SECOND)
    assert advise(lost.settle_newest(), Advisory(2, 1, (("s", 2),)))[1] == ["THROTTLE"]


def test_THROTTLE_what_does_not_fit_waits_for_the_next_advisory():
    many = tuple((f"s{n}", 1) for n in range(LISTED + 1))
    lost = AdvisedLosses().lose((*many, ("z", LOST_MAX)), 0).settle_newest()
    after, broken = advise(lost, Advisory(LOST_MAX, LISTED + 2, many[:LISTED]))
    assert (broken, after.owed, after.since) == ([], LISTED + 1, SECOND)
    assert names(after.judge_count(0)) == ["THROTTLE"]
    assert after.judge_count(LISTED + 1) == ()


def test_NOTIFY_nothing_waits_longer_than_a_second_unless_excused():
    lost = AdvisedLosses().lose((("s", 1),), 10)
    assert lost.judge_wait(10 + SECOND, SECOND) == lost.judge_wait(5_000, SECOND, 5_000) == ()
    assert names(lost.judge_wait(11 + SECOND, SECOND)) == names(lost.judge_wait(10, SECOND, alarm=False)) == ["NOTIFY"]
    assert AdvisedLosses().judge_wait(9_999, SECOND, alarm=False) == ()


def test_the_past_of_a_client_is_bounded():
    lost = AdvisedLosses(advised_at=0).lose((("s", 1),), 0)
    assert (lost.pass_time(2, 3).since, lost.pass_time(2, 3).advised_at) == (-2, -2)
    assert (lost.pass_time(9, 3).since, lost.pass_time(9, 3).advised_at) == (-3, None)


@pytest.mark.parametrize(("ordinal", "between"), [(3, 0), (4, 0), (5, 1), (7, 3)])
def test_EXACT_messages_between_the_last_that_was_delivered_and_this_one_are_counted(ordinal, between):
    assert KNOWN.count_since(ordinal) == between


@pytest.mark.parametrize(("cut", "hidden"), [(3, False), (4, True), (6, True), (7, False)])
def test_NOFALSE_a_loss_is_hidden_where_the_publisher_forgot_the_subject_in_between(cut, hidden):
    assert KNOWN.is_hidden(ArrivedMessage(6, 6, cut=cut)) is hidden
