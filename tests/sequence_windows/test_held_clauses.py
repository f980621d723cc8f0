"""The clauses of held streams that rows carry, stepped through the process `held_streams` without a driver."""

from __future__ import annotations

import pytest

from statemachines.kernel import Ask, InvariantViolated, Node, ProcessRunner
from statemachines.missed_samples.message import QueryEnded
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.source_record import RetentionOver
from statemachines.sequence_windows.held_stream import HELD_STREAM
from statemachines.sequence_windows.held_stream_actions import make_run
from statemachines.sequence_windows.held_stream_record import (
    DropStream,
    HeldStreamRecord,
    MessageHeld,
    MessagePassed,
    MessageRepeated,
    MessagesReleased,
    NoRoom,
    PutQuery,
    QueryDue,
    RecoveredMessage,
    ReplyRepeated,
    ReplyUnexpected,
    StreamGivenUp,
    StreamMessage,
)
from statemachines.sequence_windows.held_streams import (
    HELD_STREAMS,
    HeldStreamsRecord,
    PlaceRefused,
    StreamBegun,
    StreamEnded,
)
from statemachines.sequence_windows.message import Verdict
from statemachines.sequence_windows.sequence import number_of

FIRST, NEXT, SKIP, CYCLE, REPEAT, NOT_SUBSCRIBED = Verdict
STREAM = "r~1/1"
RUN, SECOND = f"{STREAM}.1", f"{STREAM}.2"
MS = 1_000_000


def a(base):
    return number_of(2, base)


def b(base):
    return number_of(3, base)


class Receiver:
    """A process, and what it told."""

    def __init__(self, **given):
        recovery = Recovery(**{"retries": 1, "timeout_ms": 100, "window": 1 << 50, "windows": 1, **given})
        self.runner = ProcessRunner(HELD_STREAMS, HeldStreamsRecord("r~1", recovery), check=True)

    def come(self, number, verdict=NEXT, *, to=STREAM, unknown=False, last=0, before=0):
        message = StreamMessage(number, verdict, unknown, last, before)
        return told(self.runner.receive("", to, message, 0))

    def show_hole(self, number=4, last=1):
        """A message with so many missing before it."""
        return self.come(a(number), SKIP, to="", last=a(last))

    def reply(self, number, to=STREAM):
        return told(self.runner.receive("", to, RecoveredMessage(number), 0))

    def feed(self, event):
        return told(self.runner.feed(STREAM, event, 0))

    def end_query(self, run=RUN, n=1, brought=1 << 40):
        return self.feed(QueryEnded(run, n, brought))

    @property
    def stream(self):
        return self.runner.record_of(STREAM)


def told(effects):
    return [effect.request if isinstance(effect, Ask) else effect.event for _, effect in effects]


def released(first, last, lost=0, own=False):
    return MessagesReleased(first, last, lost, own)


# -- the process ----------------------------------------------------------------------------------------------------


def test_SW_70_a_hole_begins_a_stream_behind_the_last_number():
    receiver = Receiver()
    assert receiver.show_hole() == [StreamBegun(STREAM), MessageHeld(a(4), False), QueryDue(RUN)]
    assert (receiver.stream.runs[0].first, receiver.runner.record.runs) == (a(2), 1)


@pytest.mark.parametrize(("verdict", "unknown"), [(SKIP, True), (FIRST, False), (CYCLE, False), (NEXT, False)])
def test_SW_72_a_message_that_shows_no_hole_is_passed(verdict, unknown):
    receiver = Receiver()
    assert receiver.come(a(4), verdict, to="", unknown=unknown) == [MessagePassed(a(4))]
    assert receiver.runner.record.runs == 0


def test_SW_74_without_a_place_the_message_is_passed():
    receiver = Receiver(sources=1)
    begun = receiver.come(b(1), SKIP, to="", last=a(1), before=a(3))  # it needs two
    assert begun == [PlaceRefused(), MessagePassed(b(1))]
    receiver.show_hole()
    assert receiver.show_hole() == [PlaceRefused(), MessagePassed(a(4))]


def test_SW_74_without_a_place_for_a_run_all_is_given_up_before_its_message():
    receiver = Receiver(sources=1)
    receiver.show_hole()
    given_up = receiver.come(b(1), NEXT, before=a(4))
    ended = [StreamGivenUp(), released(a(4), a(4), 2), StreamEnded(STREAM)]
    assert given_up == [*ended, MessagePassed(b(1))]
    assert receiver.runner.record.runs == 0


def test_SW_74_without_room_every_run_is_given_up():
    receiver = Receiver()
    receiver.show_hole()
    receiver.come(b(1), SKIP, before=a(6))
    receiver.come(b(3), SKIP)
    out = [released(a(4), a(4), 2), released(b(1), b(1), 2), released(b(3), b(3), 1)]
    assert receiver.feed(NoRoom()) == [StreamGivenUp(), *out, StreamEnded(STREAM)]
    assert (receiver.runner.record.runs, receiver.runner.nodes) == (0, {})


def test_SW_75_a_stream_that_is_dropped_ends_without_a_word():
    receiver = Receiver()
    receiver.show_hole()
    receiver.come(b(1), NEXT, before=a(4))
    assert receiver.feed(DropStream()) == [StreamEnded(STREAM)]
    assert (receiver.runner.record.runs, receiver.runner.deadline()) == (0, None)


def test_SW_77_replies():
    receiver = Receiver()
    assert receiver.reply(a(2), "") == [ReplyUnexpected()]
    receiver.show_hole(5)
    assert receiver.reply(a(3)) == [MessageHeld(a(3), True)]
    assert receiver.reply(a(3)) == [ReplyRepeated()]
    assert receiver.reply(a(6)) == receiver.reply(b(1)) == receiver.reply(a(1)) == [ReplyUnexpected()]
    assert receiver.reply(a(2)) == [MessageHeld(a(2), True), released(a(2), a(3))]


# -- to which run a message belongs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [REPEAT, FIRST, CYCLE, SKIP])
def test_SW_90_an_overtaken_message_fills_its_hole(verdict):
    receiver = Receiver()
    receiver.show_hole(5)
    assert receiver.come(a(3), verdict) == [MessageHeld(a(3), True)]
    assert receiver.come(a(2), verdict) == [MessageHeld(a(2), True), released(a(2), a(3))]


def test_SW_91_a_number_that_has_come_is_a_repeat():
    receiver = Receiver()
    receiver.show_hole()
    assert receiver.come(a(4)) == [MessageRepeated(a(4))]
    assert receiver.come(a(1)) == [MessageRepeated(a(1))]
    receiver.come(b(2), SKIP, unknown=True)
    assert receiver.come(b(1), REPEAT) == [MessageRepeated(b(1))]  # its loss counts with b(2)


def test_SW_92_a_higher_number_of_the_frame_belongs_to_the_newest_run():
    receiver = Receiver()
    receiver.show_hole()
    assert receiver.come(a(5)) == [MessageHeld(a(5), False)]
    assert receiver.come(a(9), SKIP) == [MessageHeld(a(9), False)]
    (run,) = receiver.stream.runs
    assert run.source.held == ((a(4), a(5)), (a(9), a(9)))


def test_SW_73_the_newest_run_hears_how_far_its_frame_went():
    receiver = Receiver()
    receiver.show_hole()
    assert receiver.come(b(1), SKIP, before=a(6)) == [MessageHeld(b(1), False)]
    assert [run.high for run in receiver.stream.runs] == [a(6), b(1)]
    assert receiver.runner.record.runs == 2


def test_SW_93_another_frame_begins_another_run_which_asks_at_once():
    receiver = Receiver()
    receiver.show_hole()
    receiver.come(b(1), NEXT, before=a(4))
    assert receiver.come(b(3), SKIP) == [MessageHeld(b(3), False), QueryDue(SECOND)]
    assert [(run.high, run.own) for run in receiver.stream.runs] == [(a(4), False), (b(3), False)]


def test_SW_93_runs_are_in_order():
    runs = tuple(make_run(STREAM, Recovery(), n, first) for n, first in ((1, b(1)), (2, a(2))))
    with pytest.raises(InvariantViolated, match="keeps-runs-in-order"):
        Node(HELD_STREAM, HeldStreamRecord(STREAM, Recovery(), runs), name=STREAM, now_ns=0).check()


def test_SW_94_where_no_chain_joins_two_runs_the_loss_of_the_verdict_counts():
    receiver = Receiver()
    receiver.show_hole(3)
    receiver.come(b(2), SKIP, unknown=True)
    assert receiver.reply(a(2)) == [
        MessageHeld(a(2), True),
        released(a(2), a(3)),
        released(b(2), b(2), own=True),
        StreamEnded(STREAM),
    ]


# -- when a run is over ---------------------------------------------------------------------------------------------


def test_SW_95_a_run_is_handed_over_behind_the_runs_before_it():
    receiver = Receiver()
    receiver.show_hole(3)
    receiver.come(b(1), SKIP, before=a(4))
    receiver.come(b(2))
    receiver.come(b(4), SKIP)
    assert receiver.reply(b(3)) == [MessageHeld(b(3), True)]
    assert receiver.reply(a(2)) == [MessageHeld(a(2), True), released(a(2), a(3))]
    assert receiver.end_query() == [released(b(1), b(4), 1), StreamEnded(STREAM)]


def test_SW_95_of_three_runs_the_next_one_may_be_settled_already_or_not():
    receiver = Receiver()
    receiver.show_hole(3)
    receiver.come(b(1), NEXT, before=a(3))
    receiver.come(number_of(4, 1), NEXT, before=b(1))
    receiver.come(number_of(4, 3), SKIP)
    out = receiver.reply(a(2))
    c = number_of(4, 1)
    assert out == [MessageHeld(a(2), True), released(a(2), a(3)), released(b(1), b(1)), released(c, c)]
    assert receiver.runner.record.runs == 1
    assert receiver.reply(c + 1) == [MessageHeld(c + 1, True), released(c + 1, c + 2), StreamEnded(STREAM)]


def test_SW_96_a_query_is_put_once_up_to_the_highest_number_that_is_missing():
    receiver = Receiver()
    receiver.show_hole(4)
    receiver.come(a(7), SKIP)
    (asked,) = receiver.feed(PutQuery(RUN))
    assert (asked.source, asked.n, asked.first, asked.last) == (RUN, 1, a(2), a(6))
    assert receiver.feed(PutQuery(RUN)) == receiver.feed(PutQuery(SECOND)) == []


def test_SW_96_a_query_that_was_answered_meanwhile_is_not_put():
    receiver = Receiver()
    receiver.show_hole(4)
    receiver.come(b(1), NEXT, before=a(4))
    receiver.come(b(3), SKIP)
    receiver.come(b(2))
    assert receiver.feed(PutQuery(SECOND)) == []


def test_SW_97_timers_and_ends_of_queries_are_for_the_run_that_asked():
    receiver = Receiver(retries=0)
    receiver.show_hole(3)
    receiver.come(b(1), NEXT, before=a(3))
    receiver.come(b(3), SKIP)
    assert receiver.end_query(f"{STREAM}.9") == []
    assert receiver.end_query(SECOND) == []
    assert [run.source.missing for run in receiver.stream.runs] == [1, 0]
    assert told(receiver.runner.fire(100 * MS)) == [
        released(a(3), a(3), 1),
        released(b(1), b(1)),
        released(b(3), b(3), 1),
        StreamEnded(STREAM),
    ]


def test_SW_97_a_run_asks_again_after_its_pause():
    receiver = Receiver()
    receiver.show_hole(3)
    receiver.end_query(brought=0)
    assert told(receiver.runner.fire(100 * MS)) == [QueryDue(RUN)]


def test_SW_97_silence_ends_no_run():
    receiver = Receiver(retention_ms=1, timeout_ms=1_000)
    receiver.show_hole(6)
    receiver.reply(a(2))
    receiver.end_query(brought=0)  # it asks anew for the rest
    assert receiver.feed(RetentionOver(RUN)) == []
    assert told(receiver.runner.fire(500 * MS)) == []
    assert receiver.runner.record.runs == 1


def test_SW_98_a_stream_ends_with_its_last_run_and_its_place_is_free():
    receiver = Receiver(sources=1)
    receiver.show_hole(3)
    assert receiver.reply(a(2)) == [MessageHeld(a(2), True), released(a(2), a(3)), StreamEnded(STREAM)]
    assert receiver.runner.nodes == {}
    assert receiver.show_hole(9, 4)[0] == StreamBegun("r~1/2")
