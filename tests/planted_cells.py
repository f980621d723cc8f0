"""Tables of planted bugs, as the pages `spec/PROTOCOL/planted_bugs.md` have them."""

import re
from pathlib import Path

PAGES = Path(__file__).parents[1] / "spec"
CELL = re.compile(r"(?P<what>\S.*?) in (?P<where>[^;]+?)(?: by (?P<steps>\d+) steps, (?P<states>\d+) states)?; .*")
COLUMNS = ("exploration", "simulation", "hypothesis")
STATES_MAX = 1_000
"""`make soak` finds those bugs again for which exploration looks at more states."""


def read_rows(page):
    """First cell -> cells, of the rows of a page whose first cell is a name."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.read_text().splitlines()]
    return {row[0].strip("`"): row for row in rows if row[0].startswith("`")}


def read_found(protocol):
    """Method -> bug -> what broke, where, and of an exploration by how many steps and states."""
    rows = read_rows(PAGES / protocol / "planted_bugs.md")
    return {
        method: {bug: CELL.fullmatch(row[at]) for bug, row in rows.items() if row[at : at + 1] not in ([], ["-"])}
        for at, method in enumerate(COLUMNS, 3)
    }
