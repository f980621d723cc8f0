"""The kill matrix: which mistakes there are, and which tests others stand in for."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "tools/kill_matrix"
SOURCE = '''def first(rows, at=1):
    """Of the rows."""
    try:
        rows.sort()
    except AttributeError:
        return at
    if at < 2 and rows:
        return rows[0]
    return None
'''


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield runpy.run_path(str(FOLDER / "__main__.py"), run_name="kill_matrix")
    sys.modules.pop("source_mistake", None)


@pytest.mark.parametrize(
    ("mistake", "line", "found"),
    [("negated", 7, None), ("left out", 4, 2), ("one more", 8, 2), ("returns nothing", 8, None), ("one more", 7, 1),
     ("compared otherwise", 7, 1)],
)  # fmt: skip
def test_a_mistake_changes_what_a_function_does(tool, tmp_path, mistake, line, found):
    file = tmp_path / "first.py"
    file.write_text(SOURCE)
    places = [one for one in tool["list_places"](file, file.name) if (one.line, one.mistake) == (line, mistake)]
    made = {}
    exec(sys.modules["source_mistake"].compile_with(str(file), SOURCE.encode(), places[0]), made)
    assert made["first"]([2, 3, 1]) == found


def test_what_is_kept_has_a_line_or_a_clause_of_its_own(tool):
    reached = {"a": {"f:1"}, "b": {"f:1", "f:2"}, "c": {"f:2", "f:3"}, "d": {"f:3"}, "e": {"f:3"}}
    clauses = {test: {"XX-1"} if test == "e" else set() for test in reached}
    kept = tool["keep_needed"](reached, clauses, {**dict.fromkeys(reached, 2), "b": 4}, {"a"})
    assert kept == {"a", "c", "e"}
    known = {"all": [*reached], "kept": [*kept]}
    assert tool["spare"](known, [{"by": "d"}, {"by": ""}]) == ["b"]
