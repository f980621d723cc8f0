"""`gapless demo`, small: from the processes to the page, and its exit code."""

from __future__ import annotations

import json

import pytest

from statemachines import cli
from statemachines.demo.shared_subscriptions import play
from statemachines.demo.shared_subscriptions.real import GroupRun
from statemachines.demo.simulated import SimulatedDemo, verdict


@pytest.mark.parametrize("second", [(), pytest.param(("postgres",), marks=pytest.mark.long)])
def test_the_demo_holds_and_its_page_is_there(tmp_path, capsys, second):
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.txt").write_text("".join(f"{number}: line {line}\n" for line in range(300)))
    arguments = [
        "demo",
        "shared_subscriptions",
        "--input",
        str(folder),
        "--out",
        str(tmp_path / "out"),
        "--seeds",
        "2",
        "--json",
    ]
    arguments += [part for store in second for part in ("--store", store)]
    assert cli.run(arguments) == cli.Exit.HELD
    came = json.loads(capsys.readouterr().out)
    assert came["held"] is True
    (ours,) = (one for one in came["played"] if one["protocol"] == "shared_subscriptions")
    for real in (ours["figures"][name] for name in ("real", *second)):
        assert real["acknowledged"] == 1_800
        assert real["wrong"] == []
    assert ours["figures"]["simulated"]["runs"] == 2
    assert all(line["held"] for line in ours["verdicts"])
    assert {line["part"] for line in ours["verdicts"]} == {"real", *second, "simulated"}
    assert "SIGKILL" in (tmp_path / "out" / "report" / "index.html").read_text(encoding="utf-8")


def test_a_lost_message_is_not_everything_held():
    played = GroupRun(10, 1, 9, 9, 0, 1.0, ["t: 1 of 10 lines were never acknowledged"])
    assert not all(line.held for line in play.real_lines("real", played))
    assert not verdict(SimulatedDemo(1, {}, 1, 1.0, ["seed 3: S5"]), "S1").held


def test_nothing_to_read_is_a_usage_error(tmp_path, capsys):
    assert cli.run(["demo", "--input", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == cli.Exit.USAGE
    assert "is no file and no folder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_store_that_there_is_not_is_a_usage_error(tmp_path, capsys):
    assert cli.run(["demo", "--store", "mysql", "--out", str(tmp_path / "out")]) == cli.Exit.USAGE
    assert "--store = 'mysql': must be sqlite or postgres" in capsys.readouterr().err
