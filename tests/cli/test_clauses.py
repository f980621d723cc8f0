"""Clauses are carried: each has tests named after it, and with the clause taken away one of them fails."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from clauses import named_in, tests_of

from statemachines import catalogue

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "clauses.py"
PROTOCOLS = (
    "cursor_recovery", "missed_samples", "mqtt_connections", "persistent_sessions", "sequence_windows",
    "shared_subscriptions",
)  # fmt: skip
SLICE = "2/160"
"""What of it `make test` repeats; `make clauses` asks them all, in half a minute."""


def run(*arguments):
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_clause_has_a_test_that_is_named_after_it(protocol):
    modelled = [clause.id for clause in catalogue.clauses(protocol).values() if clause.is_modelled]
    assert [clause for clause in modelled if not tests_of(clause)] == []
    assert len(modelled) > 20


def test_a_slice_of_the_clauses_is_carried():
    done = run("--slice", SLICE)
    assert "not carried" not in done.stderr, done.stderr  # a test that was ended may log how its coroutines close
    assert done.returncode == 0, done.stdout
    assert "0 clauses cannot be asked" in done.stdout


def test_what_never_ends_is_ended_though_a_callback_of_its_loop_keeps_the_error():
    spec = importlib.util.spec_from_file_location("clauses_tool", SCRIPT)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)

    async def wait_for_ever():
        def spin():
            while True:
                pass

        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        asyncio.get_running_loop().call_soon(spin)
        await asyncio.Event().wait()

    with pytest.raises(tool.TooLong), tool.limit_time(0.1):
        asyncio.run(wait_for_ever())


def test_a_clause_that_no_test_carries_is_listed(tmp_path):
    """A test that is named after a clause, and passes without it."""
    (tmp_path / "missed_samples").mkdir()
    (tmp_path / "missed_samples" / "test_weak.py").write_text("def test_MS_03_it_is_there():\n    assert True\n")
    done = run("--protocol", "missed_samples", "--tests", str(tmp_path), "MS-03", "MS-04")
    assert done.returncode == 1
    assert "MS-03 (rows) not carried: 1 tests pass without it" in done.stderr
    assert "MS-04 not carried: no test is named after it" in done.stderr
    assert done.stdout.startswith("0 of 1 mutants are found")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["XY-999"], "error: XY-999: no clause of"),
        (["--protocol", "nothing"], "error: protocol = 'nothing': unknown"),
        (["--slice", "3/2"], "expected FIRST/OF"),
    ],
)
def test_a_name_that_is_none_is_told(arguments, said):
    done = run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("name", "clauses"),
    [
        ("test_SS_80_one", ("SS-80",)),
        ("test_ss14_ss19_two", ("SS-14", "SS-19")),
        ("test_CR_33_CR_34_both", ("CR-33", "CR-34")),
        ("test_class_12_is_no_clause", ()),
        ("test_SS_999_is_not_on_the_page", ()),
    ],
)
def test_the_clauses_of_a_test_are_read_from_its_name(name, clauses):
    assert named_in(name) == clauses


def test_a_range_stands_for_all_clauses_between():
    assert named_in("test_SS_100_to_SS_103_whatever") == ("SS-100", "SS-101", "SS-102", "SS-103")
