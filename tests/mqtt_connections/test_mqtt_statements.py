"""The page that lists all normative statements: each once, with tests that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CITED = r"[A-Z]+-[\d.]+(?:-\d+)?"
"""A clause, or a statement."""
PAGE = ROOT / "docs" / "mqtt_statements.md"
SECTIONS_5 = {
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": 6, "2.2.2": 1, "3.1.0": 2, "3.1.2": 30, "3.1.3": 12,
    "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10, "3.4.2": 3, "3.5.2": 3, "3.6.1": 1,
    "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2,
    "3.10.4": 6, "3.11.2": 2, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3,
    "3.15.1": 1, "3.15.2": 3, "4.1.0": 2, "4.2.0": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2,
    "4.6.0": 6, "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3, "4.12.0": 7, "4.12.1": 2,
    "4.13.1": 1, "4.13.2": 1, "6.0.0": 4,
}  # fmt: skip
"""Section -> the number of its last statement; 2.2.1 begins with 2."""
SECTIONS_3 = {
    "1.5.3": 3, "2.2.2": 2, "2.3.1": 7, "3.1.0": 2, "3.1.2": 24, "3.1.3": 11, "3.1.4": 5, "3.2.0": 1, "3.2.2": 6,
    "3.3.1": 12, "3.3.2": 3, "3.3.4": 1, "3.3.5": 2, "3.6.1": 1, "3.8.1": 1, "3.8.3": 4, "3.8.4": 6, "3.9.3": 2,
    "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.12.4": 1, "3.14.1": 1, "3.14.4": 3, "4.1.0": 2, "4.2.0": 1, "4.3.1": 1,
    "4.3.2": 2, "4.3.3": 2, "4.4.0": 1, "4.5.0": 2, "4.6.0": 6, "4.7.1": 3, "4.7.2": 1, "4.7.3": 4, "4.8.0": 2,
    "6.0.0": 4,
}  # fmt: skip


def read_rows(heading):
    """The rows of a section of the page: statement, in short, state, tests or why."""
    text = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    return [row for row in rows if row[0][:1].isdigit()]


@pytest.mark.parametrize(("heading", "sections"), [("MQTT 5", SECTIONS_5), ("MQTT 3.1.1", SECTIONS_3)])
def test_every_numbered_statement_is_on_the_page_once_with_tests_that_exist(heading, sections):
    rows = read_rows(heading)
    first = {"2.2.1": 2} if heading == "MQTT 5" else {}
    wanted = [f"{one}-{n}" for one, last in sections.items() for n in range(first.get(one, 1), last + 1)]
    assert [row[0] for row in rows] == wanted
    there = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    } | {
        clause
        for path in (ROOT / "tests").rglob("*.txt")
        if path.parent.name in ("steps", "exchanges")
        for title in re.findall(r"^[A-Z]+-.*", path.read_text(), re.MULTILINE)
        for clause in re.findall(CITED, title)
    }
    for statement, words, state, how in rows:
        assert words
        tests = re.findall(rf"`(test_\w+|{CITED})`", how)
        assert state in ("kept", "client", "absent", "not kept"), statement
        assert bool(tests) == (state == "kept"), statement
        assert bool(how) == (state != "client"), statement
        assert [one for one in tests if one not in there] == [], statement
