"""The worked numbers of sequence windows, to the digit (spec/sequence_windows/scenarios.md).

The observers of the properties, where no run of the watch shows what they say (`broken/watch.txt`).
"""

import pytest
from msgspec.structs import replace

from statemachines.sequence_windows import sequence
from statemachines.sequence_windows.inbox_window import InboxJudged
from statemachines.sequence_windows.losses import Losses, LossPeer, table
from statemachines.sequence_windows.message import LOSS_MAX, Judged, Numbered, Verdict
from statemachines.sequence_windows.properties.heard_messages import (
    ArrivedMessage,
    HeardMessages,
    judge_ranges,
)
from statemachines.sequence_windows.publisher_table import FramesUsedUp, PublisherTable
from statemachines.sequence_windows.publisher_window import Stamped
from statemachines.sequence_windows.subscriber_table import SubscriberTable

S = 1_000_000_000
MS = 1_000_000
T = 1659131646 * S
F = 193148344
B = 0x5C19ADC000000000
FIRST, NEXT, SKIP, CYCLE, REPEAT, NOT_SUBSCRIBED = Verdict
SUBJECT = "RSF.REC.PAC.NaE"


def receiver():
    table = SubscriberTable()
    table.subscribe(SUBJECT)
    return table


def hear(table, number):
    """What one message is: its verdict, and its loss (None: unknown)."""
    told = table.receive_one(SUBJECT, "p", number, 0, 0, T)
    return told.verdict, None if told.unknown else told.lost


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
    one = PublisherTable()
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
    one = PublisherTable()
    told = [one.stamp(SUBJECT, T + later * S) for later in (0, 1, 20)]
    assert [each.number for each in told] == [B + 1, B + 2, B + 3]
    assert [(each.time_ns, each.chain) for each in told] == [(T, 0), (0, 0), (0, 0)]
    assert one.stamp("another", T).number == B + 1


@pytest.mark.parametrize(("base", "loss"), [(32768, 32766), (32769, 32767), (32770, None), (40001, None)])
def test_SW_29_a_loss_above_the_cap_is_unknown(base, loss):
    assert heard(receiver(), 1, base) == [(FIRST, 0), (SKIP, loss)]


def test_SW_21_SW_24_a_late_join():
    assert heard(receiver(), 7, 10, 12) == [(FIRST, 0), (SKIP, 2), (SKIP, 1)]


def test_SW_19_SW_20_unsubscribe_and_subscribe():
    one = receiver()
    heard(one, 1, 2)
    one.unsubscribe(SUBJECT)
    assert hear(one, B + 3) == (NOT_SUBSCRIBED, 0)
    one.subscribe(SUBJECT)
    assert hear(one, B + 9) == (FIRST, 0)
    assert hear(one, B + 10) == (NEXT, 0)


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
        Judged(SKIP, F, 9, 9, LOSS_MAX, True),
        Judged(NEXT, F, 10, 10),
    ):
        losses.of("p").count(told, T)
    for lost in (2, LOSS_MAX + 1):
        losses.of("p").count_inbox(InboxJudged(True, lost, lost > LOSS_MAX), T)
    (row,) = losses.rows()
    assert row == LossPeer("p", 3, T, 1, T, 4, T, 2, 2, T)


KNOWN = HeardMessages(arrived=3, delivered=3, known=True)


def names(broken):
    return [one.name for one in broken]


def say(verdict, lost=0, unknown=False):
    return Judged(Verdict[verdict], 1, 1, 1, lost, unknown)


def judge(heard, message, *told):
    return names(heard.observe(message, say(*told))[1])


# -- what is heard --------------------------------------------------------------------------------------------------


def test_ONCE_where_messages_overtake_each_other_what_was_not_delivered_may_be_late():
    heard, _ = replace(KNOWN, ordered=False).observe(ArrivedMessage(5, 5, 1), say("SKIP", 1))
    late, broken = heard.observe(ArrivedMessage(4, 4), say("NEXT"))
    assert (broken, late.delivered) == ((), 5)
    assert judge(late, ArrivedMessage(4, 4), "NEXT") == ["ONCE"]
    assert late.forget() == HeardMessages(arrived=5, ordered=False)


def test_ONCE_each_message_of_a_range_is_judged_once():
    event = Numbered(1, 2, 4)
    parts = (Judged(Verdict.REPEAT, 1, 2, 2), Judged(Verdict.NEXT, 1, 3, 4))
    assert judge_ranges(event, parts) == ()
    assert names(judge_ranges(event, parts[::-1])) == names(judge_ranges(event, parts[:1])) == ["ONCE"]


def test_CROWD_who_was_forgotten_for_others_is_told_of():
    gone, message = KNOWN.displace(), ArrivedMessage(4, 4, crowded=True)
    assert judge(gone, message, "FIRST", 1, True) == judge(gone, replace(message, begins=True), "FIRST") == []
    assert judge(gone, message, "FIRST") == ["CROWD"]
    assert judge(HeardMessages(), replace(message, awaited=True), "FIRST", 1, True) == []
    assert judge(HeardMessages(), replace(message, awaited=True), "FIRST") == ["DETECT"]
    assert judge(KNOWN.forget(), message, "FIRST") == []


def test_NOFALSE_nobody_was_forgotten_where_there_is_room_or_a_stream_begins():
    message = ArrivedMessage(4, 4, crowded=True)
    for other in (replace(message, crowded=False), replace(message, begins=True)):
        assert judge(KNOWN.displace(), other, "FIRST", 1, True) == ["NOFALSE"]
