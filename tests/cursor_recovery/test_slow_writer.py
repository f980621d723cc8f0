"""The run that loses an acknowledged message by age alone, on real shared memory: processes make one access after the
other in the order that the explorer found; and the shipped queue under the same schedule.

The schedule is the one that `tests/cursor_recovery/test_queue_explored.py` finds again.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from statemachines.cursor_recovery.reader import READER, new_reader
from statemachines.cursor_recovery.writer import WRITER, new_writer
from statemachines.drivers.cursor_recovery.segment import path_of
from statemachines.testing.cursor_recovery.stepped_process import SteppedQueue
from statemachines_spec.cursor_recovery.schedule import CLOCK, SETTING, ScheduledTurn
from statemachines_spec.cursor_recovery.systems import THRESHOLD_NS

SCHEDULE = msgspec.json.decode(
    (Path(__file__).with_name("golden") / "slow-writer.json").read_bytes(), type=list[ScheduledTurn]
)
ROUNDS = 200


@pytest.fixture
def make_stage(name):
    """Makes the stage of the run, where age alone decides or the death of an owner is known."""
    stages = []

    def make(by_age):
        stage = SteppedQueue(path_of(name), replace(SETTING, threshold_only=by_age).queue)
        stages.append(stage)
        for number, blocks in enumerate(SETTING.messages):
            stage.start(f"writer-{number}", WRITER, new_writer, blocks)
        stage.start("reader-0", READER, new_reader)
        return stage

    yield make
    for one in stages:
        one.__exit__(None, None, None)


def follow(stage):
    """The turns of the schedule; after each of them, of whose process, the turn and the state it is in."""
    for turn in SCHEDULE:
        process = stage.processes.get(turn.who)
        if process is None:
            stage.now_ns = turn.now_ns
        elif process.has_more:
            process.go_on()
            yield turn, process


def list_tells(stage, event, outcome):
    return [
        told
        for process in stage.processes.values()
        for told in process.tells
        if (told.event, told.outcome) == (event, outcome)
    ]


def test_by_age_alone_an_acknowledged_message_is_skipped(make_stage):
    stage = make_stage(True)
    followed = [(turn.who, turn.status, process.reports[-1].status) for turn, process in follow(stage)]
    assert followed == [(turn.who, turn.status, turn.status) for turn in SCHEDULE if turn.who != CLOCK]
    (written,) = list_tells(stage, "write_done", "written")
    (skipped,) = list_tells(stage, "skipped", "")
    assert skipped.position <= written.position <= skipped.last
    stage.segment.check_guards()


def test_the_shipped_queue_delivers_all_under_the_same_schedule(make_stage):
    stage = make_stage(False)
    assert len(list(follow(stage))) == len(SCHEDULE) - 1
    for _ in range(ROUNDS):
        stage.now_ns += THRESHOLD_NS
        for process in stage.processes.values():
            if process.has_more:
                process.go_on()
    delivered = [(told.payload, told.messages) for told in list_tells(stage, "read_done", "delivered")]
    assert sorted(delivered) == sorted(block for blocks in SETTING.messages for block in blocks)
    assert list_tells(stage, "skipped", "") == []
    stage.segment.check_guards()
