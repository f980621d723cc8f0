"""`gapless demo`, small: from the processes to the page, and its exit code."""

import json

import pytest

from statemachines import cli


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
