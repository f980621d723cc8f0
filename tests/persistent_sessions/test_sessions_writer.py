"""The writer, clause by clause (spec/persistent_sessions/clauses.md)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from session_world import Hand as By
from session_world import names, queued

from statemachines.kernel import InvariantViolated, LocalProtocolError, Node
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Written
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    EpochBegun,
    PutMarker,
    PutRows,
    ReadRow,
    RowFenced,
    RowRead,
    RowsDuplicate,
    RowStored,
    RowUnclear,
)
from statemachines.persistent_sessions.writer import WRITER
from statemachines.persistent_sessions.writer_record import (
    IDLE,
    RANGE_MAX,
    STORING,
    Hand,
    HandRange,
    LiveGone,
    LiveKnown,
    RangeWritten,
    Start,
    WriterJob,
    WriterRecord,
)
from statemachines.trace.row import ROW, step_rows

WANTED = MarkerWanted("s", "owner~1", 7, 1)


def idle(**given):
    return By(WRITER, WriterRecord("s", "w", IDLE, 1, **given))


def row(number, message, epoch=1):
    return rows(number, message, epoch=epoch)


def rows(first, *messages, epoch=1):
    """A range."""
    stored = (queued(number, message=message, filter="") for number, message in enumerate(messages, first))
    return PutRows("s", "w", epoch, tuple(stored))


def live(number, message, epoch=1):
    return Live("s", "w", epoch, queued(number, message=message, filter=""))


def test_PS_01_a_writer_begins_under_an_epoch_that_nobody_had():
    one = By(WRITER, WriterRecord("s", "w"))
    assert one.feed(Start()) == [BeginEpoch("s", "w")]
    assert one.feed(EpochBegun(4)) == []
    assert (one.status, one.record.epoch) == ("idle", 4)
    with pytest.raises(LocalProtocolError):
        one.feed(Start())
    waiting = By(WRITER, WriterRecord("s", "w"), Start(), Hand("a"))
    assert waiting.feed(EpochBegun(2)) == [row(1, "a", 2)]
    asked = By(WRITER, WriterRecord("s", "w"), Start(), WANTED)
    assert asked.feed(EpochBegun(2)) == [PutMarker("s", "w", 2, 1, 7, 1)]


def test_PS_02_PS_03_PS_04_stored_sent_live_answered_and_then_the_next():
    one = idle(to="owner~1", token=7)
    assert one.feed(Hand("a")) == [row(1, "a")]
    assert one.feed(Hand("b")) == []
    assert one.feed(WANTED) == []
    assert one.feed(replace(WANTED, n=2)) == []
    assert one.feed(RowStored()) == [live(1, "a"), Written("a", ""), row(2, "b")]
    assert one.feed(RowStored())[-1] == PutMarker("s", "w", 1, 3, 7, 2)
    assert names(one.feed(RowStored())) == ["LiveMarker"]
    assert one.status == "idle"
    nobody = idle()
    nobody.feed(Hand("a"))
    assert nobody.feed(RowStored()) == [Written("a", "")]


@pytest.mark.parametrize(("next_one", "status"), [(None, "idle"), (Hand("b"), "storing"), (WANTED, "marking")])
def test_PS_05_what_is_unclear_is_read_back_and_neither_left_out_nor_stored_twice(next_one, status):
    one = idle()
    one.feed(Hand("a"))
    if next_one is not None:
        one.feed(next_one)
    assert one.feed(RowUnclear()) == [ReadRow("s", "w", 1, 1)]
    assert one.feed(RowRead(False)) == [row(1, "a")]
    one.feed(RowUnclear())
    assert one.feed(RowRead(True))[0] == Written("a", "")
    assert (one.record.last, one.status) == (1, status)
    marking = idle(last=3)
    marking.feed(WANTED)
    assert marking.feed(RowUnclear()) == [PutMarker("s", "w", 1, 4, 7, 1)]


def test_PS_06_what_is_refused_goes_under_the_next_epoch_from_1_on():
    one = idle(last=5)
    one.feed(Hand("a"))
    assert one.feed(RowFenced(3)) == [row(1, "a", 3)]
    one.feed(RowStored())
    one.feed(WANTED)
    assert one.feed(RowFenced(4)) == [PutMarker("s", "w", 4, 1, 7, 1)]
    assert names(one.feed(RowStored())) == ["LiveMarker"]


def test_PS_07_PS_08_PS_10_a_marker_takes_its_turn_and_no_number_and_is_the_same_again():
    one = idle(last=2)
    assert one.feed(WANTED) == [PutMarker("s", "w", 1, 3, 7, 1)]
    assert one.feed(WANTED) == []
    assert one.feed(Hand("a")) == []
    shown = LiveMarker("s", "w", 1, 3, 7, 1)
    assert one.feed(RowStored()) == [shown, row(3, "a")]
    assert one.feed(WANTED) == [shown]
    one.feed(RowStored())
    assert one.feed(WANTED) == [shown]
    assert one.feed(MarkerWanted("s", "owner~0", 6, 9)) == []
    assert one.feed(replace(WANTED, n=2)) == [PutMarker("s", "w", 1, 4, 7, 2)]
    assert one.feed(WANTED) == []
    one.feed(replace(WANTED, n=3))
    assert one.feed(RowStored())[-1] == PutMarker("s", "w", 1, 4, 7, 3)
    one.feed(Hand("b"))
    assert one.feed(RowStored())[-1] == row(4, "b")


def test_PS_08_a_marker_whose_epoch_has_ended_is_stored_again():
    one = idle(last=2)
    one.feed(WANTED)
    one.feed(RowStored())
    one.feed(Hand("a"))
    one.feed(RowFenced(2))
    one.feed(RowStored())
    assert one.feed(WANTED) == [PutMarker("s", "w", 2, 2, 7, 1)]


@pytest.mark.parametrize(("next_one", "status"), [(None, "idle"), (Hand("c"), "storing"), (WANTED, "marking")])
def test_PS_475_a_row_that_another_node_has_stored_goes_out_of_the_range(next_one, status):
    one = idle()
    one.feed(Hand("first"))
    one.feed(Hand("a"))
    one.feed(Hand("b"))
    assert one.feed(RowStored())[-1] == rows(2, "a", "b")
    if next_one is not None:
        one.feed(next_one)
    assert one.feed(RowsDuplicate((2,))) == [Written("a", ""), row(2, "b")]
    assert one.feed(RowsDuplicate((2,)))[0] == Written("b", "")
    assert (one.record.last, one.status) == (1, status)


def test_PS_09_the_owner_with_the_higher_token_is_live():
    one = idle()
    one.feed(LiveKnown("owner~2", 8))
    one.feed(LiveKnown("owner~1", 7))
    one.feed(LiveGone(7))
    assert (one.record.to, one.record.token) == ("owner~2", 8)
    one.feed(LiveGone(8))
    assert one.record.to == ""


def test_PS_11_an_answer_that_nobody_waits_for_is_dropped():
    for event in (RowStored(), RowFenced(9), RowsDuplicate((1,)), RowUnclear(), RowRead(True), EpochBegun(9)):
        one = idle(last=2)
        before = one.record
        assert one.feed(event) == []
        assert one.record == before


def test_PS_12_a_writer_works_at_one_thing_at_a_time():
    broken = WriterRecord("s", "w", IDLE, 1, job=WriterJob((Hand("a"),)))
    with pytest.raises(InvariantViolated):
        Node(WRITER, broken, name="w~1", now_ns=0, check=True).feed(LiveGone(1), 0)


def together(messages):
    """They are handed over at once."""
    return HandRange(tuple(map(Hand, messages)))


def with_three(**given):
    """A writer that stores `a`, while `b` and `c` wait."""
    one = idle(**given)
    for message in ("a", "b", "c"):
        one.feed(Hand(message))
    return one


def test_PS_400_what_waits_is_one_request_and_told_in_order():
    one = with_three(to="owner~1", token=7)
    assert one.feed(RowStored()) == [live(1, "a"), Written("a", ""), rows(2, "b", "c")]
    assert one.feed(RowStored()) == [live(2, "b"), live(3, "c"), RangeWritten((Hand("b"), Hand("c")))]
    assert (one.status, one.record.last) == ("idle", 3)
    assert one.feed(Hand("d")) == [row(4, "d")]


def test_PS_400_a_range_ends_where_it_is_full_and_before_a_marker():
    one = with_three(range_max=2)
    one.feed(Hand("d"))
    assert one.feed(RowStored())[-1] == rows(2, "b", "c")
    one.feed(WANTED)
    one.feed(Hand("e"))
    assert one.feed(RowStored())[-1] == row(4, "d")
    assert one.feed(RowStored())[-1] == PutMarker("s", "w", 1, 5, 7, 1)
    one.feed(Hand("f"))
    assert one.feed(RowStored())[-1] == rows(5, "e", "f")


def test_PS_491_what_is_handed_over_at_once_is_one_request():
    one = idle()
    one.feed(LiveKnown("owner~1", 7))
    assert one.feed(together("abc")) == [rows(1, "a", "b", "c")]
    assert one.feed(together("de")) == []
    assert one.feed(RowStored())[-1] == rows(4, "d", "e")


def test_PS_491_of_what_is_handed_over_at_once_a_range_has_as_many_as_it_may():
    one = idle(range_max=2)
    assert one.feed(together("abcde")) == [rows(1, "a", "b")]
    assert one.feed(WANTED) == one.feed(together("fg")) == []
    assert one.feed(RowStored())[-1] == rows(3, "c", "d")
    assert one.feed(RowStored())[-1] == row(5, "e")
    assert one.feed(RowStored())[-1] == PutMarker("s", "w", 1, 6, 7, 1)
    assert one.feed(RowStored())[-1] == rows(6, "f", "g")


def test_PS_491_a_trace_has_a_row_for_each_message_that_is_handed_over_at_once():
    rows_of = []
    node = Node(WRITER, idle().record, name="w~1/1", now_ns=0, observe=lambda *step: rows_of.extend(step_rows(*step)))
    node.feed(together("ab"), 0)
    named = [dict(zip((column.name for column in ROW), one, strict=True)) for one in rows_of]
    assert [(one["kind"], one["event"], one["key"], one["machine"]) for one in named] == [
        ("step", "hand_range", None, WRITER.full_name),
        ("part", "hand", "a", WRITER.full_name),
        ("part", "hand", "b", WRITER.full_name),
    ]


def test_PS_03_of_markers_that_wait_the_latest_alone_has_its_turn_where_it_came():
    one = with_three()
    one.feed(WANTED)
    one.feed(Hand("d"))
    one.feed(replace(WANTED, n=2))
    assert one.feed(WANTED) == []
    one.feed(Hand("e"))
    assert one.feed(RowStored())[-1] == rows(2, "b", "c", "d")
    assert one.feed(RowStored())[-1] == PutMarker("s", "w", 1, 5, 7, 2)
    assert one.feed(RowStored())[-1] == row(5, "e")


def test_PS_401_an_unclear_range_is_read_back_by_its_first_row_and_counts_as_a_whole():
    one = with_three()
    one.feed(RowStored())
    assert one.feed(RowUnclear()) == [ReadRow("s", "w", 1, 2)]
    assert one.feed(RowRead(False)) == [rows(2, "b", "c")]
    one.feed(RowUnclear())
    assert one.feed(RowRead(True)) == [RangeWritten((Hand("b"), Hand("c")))]
    assert one.record.last == 3


def test_PS_402_a_range_that_is_refused_goes_under_the_next_epoch_as_a_whole():
    one = with_three()
    one.feed(RowStored())
    assert one.feed(RowFenced(3)) == [rows(1, "b", "c", epoch=3)]
    one.feed(Hand("d"))
    assert one.feed(RowStored())[-1] == row(3, "d", 3)


def test_PS_400_a_message_that_waits_costs_no_copy_of_those_before_it():
    one = idle()
    one.feed(Hand("a"))
    for number in range(3_000):
        one.feed(Hand(f"m{number}"))
    taken = 0
    while one.status == "storing":
        stored = [effect for effect in one.feed(RowStored()) if isinstance(effect, PutRows)]
        assert all(len(asked.rows) <= RANGE_MAX for asked in stored)
        taken += sum(len(asked.rows) for asked in stored)
    assert (taken, one.record.last, one.record.end) == (3_000, 3_001, 0)


@pytest.mark.parametrize(
    ("broken", "invariant"),
    [
        (WriterRecord("s", "w", STORING, 1, job=WriterJob((Hand("a"), Hand("b"))), range_max=1), "range-is-bounded"),
        (
            WriterRecord("s", "w", STORING, 1, job=WriterJob((Hand("a"),)), waiting=WANTED, place=1),
            "inbox-has-its-places",
        ),
    ],
)
def test_PS_400_PS_03_ranges_are_bounded_and_places_are_kept(broken, invariant):
    with pytest.raises(InvariantViolated, match=invariant):
        Node(WRITER, broken, name="w~1", now_ns=0, check=True).feed(LiveGone(1), 0)
