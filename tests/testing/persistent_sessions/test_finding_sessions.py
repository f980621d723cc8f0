"""Planted bugs of persistent sessions: Hypothesis finds them where the table of `planted_bugs.md` says.

After a change of a machine or a system: `python tools/planted.py --protocol persistent_sessions --method hypothesis
--tries 16 --write`.  Exploration's column is repeated in `tests/spec/persistent_sessions/`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statemachines.testing.bug_search import driven_run
from statemachines_spec.bug import plant_bug

PROTOCOL = "persistent_sessions"
PAGE = Path(__file__).parents[3] / "spec" / PROTOCOL / "planted_bugs.md"
CELL = re.compile(r"(?P<what>\S.*?) in (?P<where>\S+, seed 0); [\d.]+ s")


def found():
    """Bug -> what broke, and where."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines()
            if line.startswith("| `")]  # fmt: skip
    return {row[0].strip("`"): CELL.fullmatch(row[5]) for row in rows if row[5] != "-"}


FOUND = found()


def test_so_many_are_found_by_it():
    assert None not in FOUND.values()
    assert len(FOUND) >= 38


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_bug_is_found_where_the_table_says(name):
    said = FOUND[name]
    with plant_bug(f"{PROTOCOL}/{name}"):
        assert driven_run(PROTOCOL, said["where"]).what == said["what"]


def test_nothing_breaks_there_where_nothing_is_planted():
    places = sorted({said["where"] for said in FOUND.values()})
    assert len(places) > 10
    assert [(one, driven_run(PROTOCOL, one).what) for one in places] == [(one, "") for one in places]
