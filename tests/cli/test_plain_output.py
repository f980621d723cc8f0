"""What commands print of files and logs that others wrote: no control character reaches a terminal raw."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import typer

from statemachines import cli
from statemachines.commands import analysis

EVIL = "a\x1b[2J\x07\u202e\x9b"


def is_plain(text):
    return all(one.isprintable() for line in text.splitlines() for one in line)


def test_an_error_is_plain_and_keeps_its_lines(capsys):
    assert cli._fail(f"{EVIL}\nsecond", cli.Exit.USAGE) == cli.Exit.USAGE
    said = capsys.readouterr().err
    assert is_plain(said)
    assert len(said.splitlines()) == 2


@pytest.mark.parametrize(("unjudged", "absent"), [({EVIL: 3}, ()), ({}, (f"who published {EVIL}",))])
def test_what_an_analysis_prints_is_plain(capsys, unjudged, absent):
    check = SimpleNamespace(
        name="rows", level="rows", checked=1, wrong=1, waived=0, verdict="violated", claim="all are"
    )
    unheard = SimpleNamespace(**{**vars(check), "verdict": f"not judged: no log of {EVIL}"})
    found = SimpleNamespace(
        is_held=True,
        runs=1,
        rows=1,
        torn=0,
        checks=[check, unheard],
        unjudged_steps=unjudged,
        absent=absent,
        tables={"findings": [{"run": 0, "seq": 1, "promised": True, "detail": f"{EVIL} came twice"}]},
    )
    analysis._print({"x": found}, None, None)
    with pytest.raises(typer.Exit):
        analysis._exit([found])
    said = capsys.readouterr()
    assert "came twice" in said.out
    assert is_plain(said.out)
    assert is_plain(said.err)
