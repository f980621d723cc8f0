"""`gapless demo` for any protocol: whose demo plays, its options, the verdicts, the page, the exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from statemachines import cli, registry
from statemachines.demo import show
from statemachines.demo.protocol import DemoGlance, DemoVerdict, PlayedDemo
from statemachines.kernel import Protocol


class Options(msgspec.Struct, frozen=True):
    guests: Annotated[int, msgspec.Meta(description="How many come.", ge=1)] = 2
    late_by: str = "nothing"


class PubDemo:
    title = "A pub"
    options = Options

    def check(self, given):
        """Any will do."""

    def play(self, out, given, say, advance):
        say(f"{given.options.guests} guests, late by {given.options.late_by}, {given.seeds} seeds")
        out.mkdir(parents=True)
        (out / "bill").write_text("paid")
        advance(1, 1)
        wrong = () if given.options.guests < 10 else ("somebody stands",)
        lines = (DemoVerdict("real", "everybody sits", not wrong, f"{given.options.guests} sit"),)
        return PlayedDemo(
            "A pub was full.",
            lines,
            wrong=wrong,
            figures={"guests": given.options.guests},
            glance=DemoGlance("all came at once", ((given.options.guests, "guests"),)),
        )


DEMO = PubDemo()


@pytest.fixture
def pub(monkeypatch):
    """A protocol that alone has a demo."""
    monkeypatch.setitem(sys.modules, "pub_of_a_test", sys.modules[__name__])
    one = Protocol("pub", "PUB", {}, areas={"demo": "pub_of_a_test:DEMO"})
    monkeypatch.setattr(show, "having_demo", lambda: ("pub",))
    monkeypatch.setitem(registry._REGISTERED, "pub", one)


def run(tmp_path, *arguments):
    return cli.run(["demo", *arguments, "--out", str(tmp_path / "out"), "--json"])


@pytest.mark.usefixtures("pub")
@pytest.mark.parametrize("named", [("pub",), ()], ids=["named", "the only one"])
def test_a_demo_plays_and_its_page_is_there(tmp_path, capsys, named):
    assert run(tmp_path, *named, "--guests", "3", "--late-by=an hour", "--seeds", "7") == cli.Exit.HELD
    said = capsys.readouterr()
    came = json.loads(said.out)
    assert "3 guests, late by an hour, 7 seeds" in said.err
    assert (came["held"], came["page"]) == (True, str(tmp_path / "out" / "report" / "index.html"))
    (played,) = came["played"]
    assert (played["protocol"], played["figures"], played["wrong"]) == ("pub", {"guests": 3}, [])
    assert played["verdicts"] == [{"part": "real", "check": "everybody sits", "held": True, "figure": "3 sit"}]
    page = Path(came["page"]).read_text(encoding="utf-8")
    assert "A pub was full." in page
    assert "<small>all came at once</small>\n<i><b>3</b> guests</i>" in page
    assert run(tmp_path, "pub") == cli.Exit.HELD, "what an earlier one left is replaced"


@pytest.mark.usefixtures("pub")
def test_a_verdict_that_does_not_hold_is_the_exit_code(tmp_path, capsys):
    assert cli.run(["demo", "--guests", "10", "--out", str(tmp_path / "out")]) == cli.Exit.VIOLATED
    said = capsys.readouterr().out
    assert "everybody sits  VIOLATED  10 sit" in said
    assert "somebody stands" in said
    assert "NOT everything held" in said


@pytest.mark.usefixtures("pub")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--stars", "5"], "option = '--stars': unknown; there are: --guests, --json, --late-by, --out, --seeds"),
        (["--guests", "many"], "--guests = 'many': Expected `int`"),
        (["--guests", "0"], "--guests = '0': Expected `int` >= 1"),
        (["pub", "--guests"], "option = '--guests': wants a value"),
        (["pub", "inn"], "protocol = 'inn': one at a time, and 'pub' is named already"),
        (["inn"], "protocol = 'inn': unknown"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, capsys, arguments, says):
    assert cli.run(["demo", "--out", str(tmp_path / "out"), *arguments]) == cli.Exit.USAGE
    said = capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) <= 2
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("pub")
def test_the_list_names_options(capsys):
    assert cli.run(["demo", "list"]) == cli.Exit.HELD
    assert capsys.readouterr().out == "pub: A pub\n  --guests  How many come.\n  --late-by  \n"


def test_a_protocol_without_a_demo_is_an_error_that_names_those_that_have_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(registry._REGISTERED, "lacking", Protocol("lacking", "LCK", {}))
    assert cli.run(["demo", "lacking", "--out", str(tmp_path / "out")]) == cli.Exit.USAGE
    assert "has no part for 'demo'" in capsys.readouterr().err
