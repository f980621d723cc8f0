"""The other judges, before a mutant: simulation, Hypothesis and tests, each with a few seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.testing.mutant_queue import judges_of, notice
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape

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
