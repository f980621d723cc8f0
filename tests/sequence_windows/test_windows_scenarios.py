"""The worked numbers of sequence windows, to the digit (spec/sequence_windows/scenarios.md)."""

from __future__ import annotations

import pytest

from statemachines.kernel import Node, Tell
from statemachines.sequence_windows import late_join, loss_notifier, sequence
from statemachines.sequence_windows.inbox_window import INBOX_WINDOW, Inboxed, InboxJudged, InboxWindowRecord
from statemachines.sequence_windows.losses import Losses, LossPeer, table
from statemachines.sequence_windows.message import Judged, Verdict
from statemachines.sequence_windows.publisher_table import FramesUsedUp, PublisherTable
from statemachines.sequence_windows.publisher_window import Stamped
from statemachines.sequence_windows.rotation import Window
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
