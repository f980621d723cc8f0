"""MQTT connections explored: a client that says anything, a takeover, and a session that refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statemachines import cli
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.explore import explore
from statemachines_spec.hunt import look
from statemachines_spec.mqtt_connections import SPEC
from statemachines_spec.mqtt_connections.bugs import BUGS

FOLDER = Path(__file__).parents[3] / "spec" / "mqtt_connections"
CELL = re.compile(r"(?P<what>\S+) in (?P<where>.+) by (?P<steps>\d+) steps, (?P<states>\d+) states; .*")


def read_rows(page):
    """First cell -> cells, of the rows of a page whose first cell is a name."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.read_text().splitlines()]
    return {row[0].strip("`"): row for row in rows if row[0].startswith("`")}


@pytest.mark.parametrize("name", SPEC.systems)
def test_a_connection_keeps_its_promises(name):
    """ACKED, EXACTLY, QUOTA, ONEEND, VIOLATION, SAYABLE, ANSWERED, RELEASED, ONEOWNER and WILL."""
    result = explore(SPEC.system(name), engine="plain", hashing=False)
    assert (result.ended, result.is_held, result.is_shown) == ("complete", True, True)
    assert int(read_rows(FOLDER / "systems.md")[name][2].replace(" ", "")) == result.states


def test_every_bug_is_in_the_table():
    assert list(read_rows(FOLDER / "planted_bugs.md")) == [bug.name for bug in BUGS]


@pytest.mark.parametrize("bug", [bug.name for bug in BUGS])
def test_a_planted_bug_is_found_where_the_table_says(bug):
    cell = CELL.fullmatch(read_rows(FOLDER / "planted_bugs.md")[bug][3])
    hunt = next(one for one in SPEC.hunts() if one.name == cell["where"])
    with plant_bug(f"mqtt_connections/{bug}"):
        found = look(hunt, twice=False)
    assert (found.what, found.steps, found.states) == (cell["what"], int(cell["steps"]), int(cell["states"]))


def test_the_commands_know_it(capsys):
    assert cli.run(("check", "mqtt_connections", "--system", "publishing", "--engine", "plain")) == 0
    assert "VIOLATION" in capsys.readouterr().out
    assert cli.run(("check", "mqtt_connections", "--system", "strange")) == 2
