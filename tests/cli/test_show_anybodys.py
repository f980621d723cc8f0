"""`gapless show mine:COORDINATOR`: a machine of a file in the working directory, registered nowhere, in every form."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

MINE = '''"""Mine: a coordinator of two-phase commits, and nobody's protocol."""

import msgspec
from statemachines.kernel import STAY, Call, Fsm, Ignore, Message, Row, Status, Timer, TimerFired

class Phase(Status):
    IDLE = "idle"
    ASKING = "asking"
    DONE = "done"

class Begin(Call, frozen=True):
    pass

class Vote(Message, frozen=True):
    yes: bool

class GiveUp(TimerFired, frozen=True):
    pass

class Record(msgspec.Struct, frozen=True):
    status: Phase = Phase.IDLE
    votes: int = 0

def count(record, event, now_ns):
    return msgspec.structs.replace(record, votes=record.votes + 1), ()

def is_last(record, event):
    return event.yes and record.votes == 2

COORDINATOR = Fsm(
    "coordinator", record=Record, states=Phase, initial=Phase.IDLE, final=(Phase.DONE,),
    rows=(
        Row(Begin, Phase.IDLE, Phase.ASKING, None, None, "TC-01"),
        Row(Vote, Phase.ASKING, Phase.DONE, count, is_last, "TC-02"),
        Row(Vote, Phase.ASKING, STAY, count, None, "TC-03"),
        Row(GiveUp, Phase.ASKING, Phase.DONE, None, None, "TC-04"),
        Ignore((Begin,), Phase.ASKING, "TC-05"),
        Ignore((Vote, GiveUp), Phase.IDLE, "TC-05"),
    ),
    timers=(Timer("give_up", GiveUp, (Phase.ASKING,), lambda record: 10, once=True),),
)
NUMBER = 7
'''


@pytest.fixture
def show(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)

    def run(*arguments):
        command = [sys.executable, "-m", "statemachines", "show", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


ARROW = {
    "--mermaid": ("stateDiagram-v2", "asking --> done: 1 vote [is_last] / count<br/>3 give_up"),
    "--graphviz": ('digraph "coordinator" {', r'"asking" -> "done" [label="1 vote [is_last] / count\l3 give_up\l"];'),
    "--markdown": ("| # | event", "| 1 | vote | asking | done | is_last | count | TC-02 |"),
}


@pytest.mark.parametrize("form", ARROW)
def test_it_is_drawn(show, form):
    came = show("mine:COORDINATOR", form)
    begin, line = ARROW[form]
    assert (came.returncode, came.stderr) == (0, "")
    assert came.stdout.startswith(begin)
    assert line in came.stdout


def test_its_table_is_printed(show):
    came = show("mine:COORDINATOR")
    assert (came.returncode, came.stderr) == (0, "")
    assert came.stdout.startswith("coordinator: a coordinator of two-phase commits, and nobody's protocol\n")
    assert "states: idle, asking, done; starts in idle; ends in done" in came.stdout
    assert "give_up   armed on entering asking" in came.stdout


def test_as_json_it_has_its_lines_and_no_clauses_without_a_page(show):
    shown = msgspec.json.decode(show("mine:COORDINATOR", "--json").stdout)
    assert (shown["name"], shown["protocol"], shown["clauses"]) == ("coordinator", "", [])
    assert [line["clause"] for line in shown["lines"]] == [
        "TC-01",
        "TC-02",
        "TC-03",
        "TC-04",
        "TC-05",
        "TC-05",
        "TC-05",
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mine:NOBODY", "the module has no 'NOBODY'"),
        ("mine:NUMBER", "is no Fsm, but a int"),
        ("yours:COORDINATOR", "there is no module 'yours'"),
        ("coordinator", "or give module:ATTRIBUTE"),
    ],
)
def test_what_is_not_there_is_named(show, name, says):
    came = show(name)
    assert (came.returncode, came.stdout) == (2, "")
    assert says in came.stderr
    assert len(came.stderr.splitlines()) <= 2
