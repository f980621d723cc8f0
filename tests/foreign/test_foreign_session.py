"""Owner and Writer of a session that somebody wrote in plain Python: they pass; ten mistakes of the owner are found."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.testing.conformance.campaign import Campaign, ConformanceOutcome
from statemachines.testing.conformance.child_process import ChildProcess
from statemachines.testing.conformance.role import role_of

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from session_bugs import BUGS, LATER  # noqa: E402

sys.path.pop(0)

ROLE = role_of("persistent_sessions/session")
QUICK = ("a writer that dies and comes back", "exactly once")
FILES = ("session.py", "session_state.py", "session_writers.py")


@pytest.mark.parametrize("runs", [20, pytest.param(200, marks=pytest.mark.long)])
def test_a_foreign_writer_passes_and_every_row_is_taken(runs):
    command = (sys.executable, str(HERE / "writer.py"))
    verdict = Campaign(role_of("persistent_sessions/writer"), lambda: ChildProcess(command)).judge(runs=runs)
    assert verdict.outcome is ConformanceOutcome.PASS, verdict
    assert verdict.coverage.missed == ()


def campaign(folder, *starts):
    command = (sys.executable, str(folder / "session.py"))
    some = tuple(one for one in ROLE.starts if one.name in starts or not starts)
    return Campaign(replace(ROLE, starts=some), lambda: ChildProcess(command))


@pytest.mark.long
def test_a_foreign_owner_of_a_session_passes_and_every_row_is_taken():
    verdict = campaign(HERE, *QUICK).judge(runs=30)
    assert verdict.outcome is ConformanceOutcome.PASS, verdict
    assert verdict.coverage.missed == ()
    assert verdict.coverage.taken > 80


LONG = (
    "rows behind the marker are taken from the database, too",
    "a writer that is heard while it is fenced counts as gone",
)
"""`make soak` looks for these."""


@pytest.mark.parametrize("bug", mark_long(BUGS, *LONG))
def test_a_planted_bug_is_found_and_its_run_is_short(tmp_path, bug):
    for file in FILES:
        shutil.copy(HERE / file, tmp_path)
    start, file, right, wrong = BUGS[bug]
    text = (tmp_path / file).read_text()
    assert text.count(right) == 1
    (tmp_path / file).write_text(text.replace(right, wrong))
    verdict = campaign(tmp_path, start).judge(runs=400)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert 2 <= len(verdict.moves) <= 20
    again = campaign(tmp_path, start).replay(verdict.moves)
    assert (again.outcome, again.why) == (ConformanceOutcome.FAIL, verdict.why)


def test_half_of_the_bugs_show_only_later():
    assert set(BUGS) >= LATER
    assert (len(BUGS), len(LATER)) == (10, 6)
