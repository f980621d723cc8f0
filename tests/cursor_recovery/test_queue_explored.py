"""The queue explored: every interleaving of the accesses of a few processes, which may die at any of them.

The run that loses an acknowledged message by age alone, on real shared memory: processes make one access after the
other in the order that the explorer found; and the shipped queue under the same schedule.

The schedule is the one that `tests/cursor_recovery/test_queue_explored.py` finds again.

The other judges, before a mutant: simulation, Hypothesis and tests, each with a few seconds.
"""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from statemachines.cursor_recovery.reader import READER, new_reader
from statemachines.cursor_recovery.writer import WRITER, new_writer
from statemachines.drivers.cursor_recovery.segment import path_of
from statemachines.kernel import ConfigurationError
from statemachines.testing.cursor_recovery.stepped_process import SteppedQueue
from statemachines.testing.mutant_queue import judges_of, notice
from statemachines_spec import certificates
from statemachines_spec.cursor_recovery.directed_systems import DIRECTED_SYSTEMS
from statemachines_spec.cursor_recovery.schedule import CLOCK, SETTING, ScheduledTurn, schedule_of, slow_writer
from statemachines_spec.cursor_recovery.systems import system
from statemachines_spec.directed_system import explore_directed
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape

GOLDEN = Path(__file__).with_name("golden") / "slow-writer.json"
"""Written by `python -m statemachines_spec.cursor_recovery.schedule tests/cursor_recovery/golden/slow-writer.json`."""
FOLDER = Path(__file__).parents[2] / "spec" / "cursor_recovery" / "certificates"
"""Smallest first."""
QUICK = ("pools", "reborn", "one-each")
LARGE = ("few", "readers", "many")
"""Half a million states and more each: the soak explores them."""


@pytest.mark.parametrize("name", QUICK)
def test_the_plain_walker_comes_to_the_same(name):
    kept = certificates.read(FOLDER / f"{name}-small.json")
    result = explore(system(name), engine="plain", hashing=False)
    assert (result.is_held, result.states, result.transitions) == (True, kept.states, kept.transitions)


def test_by_age_alone_a_slow_owner_shares_its_cursor():
    result = explore(system("slow", variant="by_age"))
    assert result.ended == VIOLATED
    assert {name.partition(" ")[0] for name, held in result.always.items() if not held} == {"EXCL"}


@pytest.mark.long
def test_by_age_alone_a_slow_writer_costs_an_acknowledged_message():
    """By the very run that real processes repeat (tests/cursor_recovery/test_queue_explored.py)."""
    result = explore(slow_writer())
    assert result.path.broken == "ACK"
    assert schedule_of(result) == msgspec.json.decode(GOLDEN.read_bytes(), type=list[ScheduledTurn])


@pytest.mark.long
def test_where_the_death_of_an_owner_is_known_a_slow_writer_costs_nothing():
    result = explore(slow_writer("repaired"))
    assert (result.ended, result.is_held) == (COMPLETE, True)


SHORT = [
    directed
    for directed in DIRECTED_SYSTEMS
    if directed.name in ("left by the dead", "left by earlier lives", "alone", "one of each")
]


@pytest.mark.parametrize("directed", SHORT, ids=lambda directed: directed.name)
def test_nothing_breaks_in_a_directed_system_where_nothing_is_planted(directed):
    assert explore_directed(directed).what == ""


# -- mutants --------------------------------------------------------------------------------------------------------

SLICE = {
    "writer/1/to-1_take_cursor": ("error", "LocalProtocolError"),
    "reader.tell_broken/5/1-is-0": ("property", "TOLD"),
    "writer.tell_full/2/Outcome.FULL-is-Outcome.NO_CURSOR": ("property", "TRUTH"),
    "writer.tell_written/3/record.write_head-is-record.messages": ("property", "KEPT"),
    "block.commit_word/4/64-is-63": ("lived", ""),
}
"""A fixed few, in the systems that are named: what is known to be killed, by what, and what is known to live."""


@pytest.fixture(scope="module")
def judged():
    field = CampaignScope(CampaignShape("cursor_recovery", ("alone", "one of each", "slow by age")))
    judge = field.judge(lambda text: None)
    return {one.name: judge.judge(one) for one in field.mutants if one.name in SLICE}


@pytest.mark.parametrize("name", SLICE)
def test_a_mutant_of_the_fixed_slice_comes_to_what_it_came_to(name, judged):
    """TOLD and TRUTH among them: what is passed in silence, and what is not so."""
    assert (judged[name].verdict, judged[name].by) == SLICE[name]


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


QUEUE = "cursor_recovery"

A_TEST = """
from statemachines.cursor_recovery.writer import WRITER, Write, QueueWriterStatus, new_writer
from statemachines.cursor_recovery.memory import Queue


def test_a_block_that_is_too_large_is_refused():
    record = new_writer(Queue(capacity=16), 0, 1)
    assert WRITER.step(record, Write(b"12345"), 0).record.status is QueueWriterStatus.OVERSIZE
"""


A_FAILURE = """
    from statemachines.cursor_recovery.memory import Queue
    from statemachines.cursor_recovery.writer import WRITER, Write, QueueWriterStatus, new_writer

    record = new_writer(Queue(capacity=16), 0, 1)
    assert WRITER.step(record, Write(b"12345"), 0).record.status is QueueWriterStatus.OVERSIZE
"""


@pytest.fixture(scope="module")
def mutants():
    return {one.name: one for one in CampaignScope(CampaignShape(QUEUE)).mutants}


@pytest.mark.long
def test_pytest_plants_the_mutant_and_names_the_test_that_fails(mutants, tmp_path):
    file = tmp_path / "test_too_large.py"
    file.write_text(A_TEST)
    noticed = notice(QUEUE, mutants["writer/0/deleted"], "tests", 120, (file,))
    assert noticed.what == "test_too_large.py::test_a_block_that_is_too_large_is_refused"
    assert not notice(QUEUE, mutants["writer/1/to-full"], "tests", 120, (file,)).what


def test_the_test_that_fails_is_named_whole(mutants, tmp_path):
    file = tmp_path / "test_slash.py"
    file.write_text("import pytest\n\n@pytest.mark.parametrize('key', ['a/b'])\ndef test_it(key):" + A_FAILURE)
    assert notice(QUEUE, mutants["writer/0/deleted"], "tests", 120, (file,)).what == "test_slash.py::test_it[a/b]"


def test_tests_that_never_end_with_a_mutant_have_noticed_it(mutants, tmp_path):
    file = tmp_path / "test_for_ever.py"
    file.write_text("def test_it():\n    while True:\n        pass\n")
    assert notice(QUEUE, mutants["writer/0/deleted"], "tests", 1, (file,)).what == "the tests are never done"


@pytest.mark.long
def test_what_one_judge_leaves_behind_no_other_meets(mutants, tmp_path):
    """A pytest that cannot run any more, since Hypothesis ran before it, was taken for one that had noticed."""
    file = tmp_path / "test_too_large.py"
    file.write_text(A_TEST)
    lives = mutants["writer/1/to-full"]
    notice(QUEUE, lives, "hypothesis", 1)
    notice(QUEUE, lives, "simulation", 1)
    assert not notice(QUEUE, lives, "tests", 120, (file,)).what


def test_a_pytest_that_cannot_run_has_not_noticed_anything(mutants, tmp_path):
    (tmp_path / "conftest.py").write_text("raise SystemError\n")
    with pytest.raises(ConfigurationError, match="fail without any mutant; mend that first"):
        notice(QUEUE, mutants["writer/0/deleted"], "tests", 120, (tmp_path,))


def test_hypothesis_notices_what_breaks_within_a_few_steps(mutants):
    assert notice(QUEUE, mutants["writer/1/to-1_take_cursor"], "hypothesis", 60).what


def test_a_judge_that_the_protocol_does_not_have_is_not_asked():
    assert "tests" not in judges_of(QUEUE, ())
    assert judges_of("shared_subscriptions", (Path("tests"),)) == ("tests", "simulation", "hypothesis")
