"""Traces of a writer, and many messages that wait for one (spec/persistent_sessions/clauses.md)."""

from __future__ import annotations

from statemachines.kernel import Ask, Node
from statemachines.persistent_sessions.request import RowStored
from statemachines.persistent_sessions.writer import WRITER
from statemachines.persistent_sessions.writer_record import IDLE, RANGE_MAX, STORING, Hand, HandRange, WriterRecord
from statemachines.trace.row import ROW, step_rows

RECORD = WriterRecord("s", "w", IDLE, 1)


def test_PS_491_a_trace_has_a_row_for_each_message_that_is_handed_over_at_once():
    rows_of = []
    node = Node(WRITER, RECORD, name="w~1/1", now_ns=0, observe=lambda *step: rows_of.extend(step_rows(*step)))
    node.feed(HandRange((Hand("a"), Hand("b"))), 0)
    named = [dict(zip((column.name for column in ROW), one, strict=True)) for one in rows_of]
    assert [(one["kind"], one["event"], one["key"], one["machine"]) for one in named] == [
        ("step", "hand_range", None, WRITER.full_name),
        ("part", "hand", "a", WRITER.full_name),
        ("part", "hand", "b", WRITER.full_name),
    ]


def test_PS_400_a_message_that_waits_costs_no_copy_of_those_before_it():
    node = Node(WRITER, RECORD, name="w~1/1", now_ns=0, check=True)
    for number in range(3_001):
        node.feed(Hand(f"m{number}"), 0)
    taken = 0
    while node.record.status is STORING:
        asked = [len(one.request.rows) for one in node.feed(RowStored(), 0) if isinstance(one, Ask)]
        assert all(count <= RANGE_MAX for count in asked)
        taken += sum(asked)
    assert (taken, node.record.last, node.record.end) == (3_000, 3_001, 0)
