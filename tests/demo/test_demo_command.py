"""`gapless demo` for any protocol: whose demo plays, its options, the verdicts, the page, the exit code."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Annotated

import msgspec
import pytest

from statemachines import cli, registry
from statemachines.demo import show
from statemachines.demo.protocol import DemoClaim, DemoOptions, DemoProtocol, DemoStep, LineOptions, sum_accounts
from statemachines.demo.simulated import describe_lack
from statemachines.kernel import ConfigurationError, Protocol


class Options(DemoOptions, frozen=True):
    guests: Annotated[int, msgspec.Meta(description="How many come.", ge=1)] = 2
    late_by: str = "nothing"


def open_pub(stage):
    stage.tell(f"{stage.options.guests} guests, late by {stage.options.late_by}, {stage.seeds} seeds")
    stage.out.mkdir(parents=True)
    (stage.out / "bill").write_text("paid")
    stage.advance(1, 1)
    guests = stage.options.guests
    accounts = [{"room": room, "standing": room == "bar" and guests > 9} for room in ("bar", "garden")]
    return {**sum_accounts(accounts), "guests": guests, "wrong": ["no chair"] if guests == 8 else []}


SEATS = DemoClaim("everybody sits", "{guests} sit", {"standing": "{room}: somebody stands"})
BEER = DemoClaim("there is beer", "enough", holds=lambda figures: figures["guests"] != 7)
DEMO = DemoProtocol(
    "A pub",
    (
        DemoStep("real", open_pub, "{guests} came", (SEATS, BEER)),
        DemoStep("cellar", open_pub, "", (), is_played=lambda options: options.late_by == "a day"),
    ),
    "A pub was full of {real[guests]}.",
    "{real[guests]} came at once",
    (("guests", "guests"),),
    Options,
)


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
@pytest.mark.parametrize(
    ("guests", "says"),
    [
        ("10", ["everybody sits  VIOLATED  10 sit", "\n  bar: somebody stands\n"]),
        ("8", ["everybody sits  held      8 sit", "\n  no chair\n"]),
        ("7", ["there is beer   VIOLATED  enough"]),
    ],
)
def test_a_verdict_that_does_not_hold_is_the_exit_code(tmp_path, capsys, guests, says):
    assert cli.run(["demo", "--guests", guests, "--out", str(tmp_path / "out")]) == cli.Exit.VIOLATED
    said = capsys.readouterr().out
    assert [one for one in (*says, "NOT everything held") if one not in said] == []
    assert "garden" not in said


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--input", "none"], "is no file and no folder"),
        (["--store", "mysql"], "--store = 'mysql': must be sqlite or postgres"),
    ],
)
def test_an_option_that_one_protocol_refuses_is_refused_before_any_plays(tmp_path, capsys, arguments, says):
    assert cli.run(["demo", *arguments, "--out", str(tmp_path / "out")]) == cli.Exit.USAGE
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_lines_are_of_the_input_and_an_input_without_lines_is_named(tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(ConfigurationError, match="has no line"):
        LineOptions(str(tmp_path)).check()
    with pytest.raises(ConfigurationError, match="is no file and no folder"):
        LineOptions(str(tmp_path / "nothing.txt")).check()
    (tmp_path / "some.txt").write_text("a\nb\n" + "x" * 500)
    assert LineOptions(str(tmp_path)).read_lines(5, 200) == [b"a", b"b", b"x" * 200, b"a", b"b"]
    assert any(b"ConfigurationError" in line for line in LineOptions().read_lines(2_000, 80))


def test_a_simulated_run_that_shows_too_little_is_too_tame():
    one = SimpleNamespace(tally={"delivered": 50}, faults={"kill": 5, "pause": 3})
    assert describe_lack(one, {"delivered": 50, "faults": 8, "kinds": 2}) == ""
    assert describe_lack(one, {"delivered": 51, "faults": 9, "kinds": 3}) == "50 delivered, 8 faults, 2 kinds"


@pytest.mark.parametrize("wrong", [[], ["seed 3: S5"]])
def test_a_run_that_breaks_a_monitor_is_not_everything_held(wrong):
    steps = [step for name in show.having_demo() for step in show.demo_of(name).steps if step.part == "simulated"]
    assert len(steps) == 4
    for step in steps:
        came = show.DemoResult("a protocol")
        show.judge_step(step, {"runs": 1, "faults": 2, "wrong": wrong}, came)
        assert (came.is_held, came.verdicts[0].held, came.wrong) == (not wrong, not wrong, wrong)
