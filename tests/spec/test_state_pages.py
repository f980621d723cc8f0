"""Pages to step through: a system with its counterexample, and a machine; a browser clicks through them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from toy_system import never_takes, toy

from statemachines import catalogue, cli
from statemachines.step_page import BEYOND, NOWHERE, write_step_page
from statemachines_reports.draw_machine import make_page as machine_page
from statemachines_spec import explore
from statemachines_spec.state_page import make_page

SYSTEM = toy({"in_flight": 2}, properties=(never_takes(20),))

CLICKS = """<script>
const said = [], count = () => document.querySelectorAll("#moves button").length;
const note = () => said.push(at("where").textContent + " | " + count());
const first = at("name").nextElementSibling, verdict = [first.innerText.trim(), getComputedStyle(first).display];
note();
while (!at("follow").hidden && !at("follow").disabled) { at("follow").click(); note(); }
const far = way.length, rows = document.querySelectorAll("#way .row").length;
at("back").click(); note();
at("start").click(); note();
const moves = [...document.querySelectorAll("#moves button:enabled")];
moves[0].focus();
moves[0].click();
const kept = [document.activeElement === (document.querySelector("#moves button:enabled") || at("back"))];
document.querySelector("#way button").focus();
document.querySelector("#way button").click();
kept.push(document.activeElement === document.querySelector("#way li:last-child button"));
const press = key => document.dispatchEvent(new KeyboardEvent("keydown", {key}));
const steps = way.length;
press("ArrowRight");
const forth = way.length - steps;
press("ArrowLeft");
kept.push(forth === (at("follow").hidden ? 0 : 1) && way.length === Math.max(1, steps + forth - 1));
const box = document.querySelectorAll("[data-state]");
if (box.length) { box[box.length - 1].onclick(); note(); }
document.body.innerHTML = JSON.stringify({verdict, said, far, rows, way: way.length, kept});
</script>"""


def click_through(path):
    """What a reader sees who follows the counterexample, goes back, and begins anew."""
    path.write_text(path.read_text(encoding="utf-8").replace("</body>", CLICKS + "</body>"), encoding="utf-8")
    chromium = shutil.which("chromium")
    assert chromium, "the set-up installs chromium"
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", path.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    return json.loads(re.search(r"<body>(\{.*\})\s*</body>", shown).group(1))


def data_of(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="', text), "nothing is loaded from elsewhere"
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text).group(1))


@pytest.fixture(scope="module")
def broken():
    return explore(SYSTEM, engine="plain").path


def test_a_counterexample_is_followed_step_by_step_to_what_it_breaks(broken, tmp_path):
    page = make_page(SYSTEM, broken, ("VIOLATED", "never 20: a"))
    write_step_page(tmp_path / "run.html", page)
    state = 0
    for step, leg in zip(page.path, broken.legs, strict=True):
        move = page.states[state].moves[step.move]
        assert move.target == step.state
        assert ("lost" in page.kinds[move.kind], "copy" in page.kinds[move.kind]) == (leg.kind == 3, leg.kind == 2)
        assert page.events[move.event][0] == leg.envelope.to
        state = step.state
    assert move.breaks == page.broken == "never 20"
    taken = [step for leg in broken.legs for turn in leg.turns for step in turn.steps if step.row >= 0]
    assert [row for step in page.path for row in step.rows] == [
        f"{one.machine} {one.instance}".strip() + f": {one.source} -> {one.dest}, row {one.row} [{one.clause}]"
        for one in taken
    ]
    seen = click_through(tmp_path / "run.html")
    assert seen["rows"] == len(taken)
    assert seen["verdict"] == ["VIOLATED never 20: a", "block"]
    assert seen["far"] == len(broken.legs) + 1
    assert seen["said"][0].startswith("State 0 | ")
    assert f"State {state}: broken: never 20" in seen["said"][len(broken.legs)]
    assert seen["said"][-1] == seen["said"][0]
    assert seen["way"] == 1
    assert seen["kept"] == [True] * 3, "with keys alone a reader goes on where the last step was chosen"


def test_a_page_is_bounded_and_says_so(broken, tmp_path):
    page = make_page(SYSTEM, broken, ("VIOLATED", "never 20: a"), states_max=len(broken.legs) + 5)
    assert len(page.states) == len(broken.legs) + 5
    assert page.about.endswith(f"holds the nearest {len(page.states)} states.")
    targets = {move.target for state in page.states for move in state.moves}
    assert BEYOND in targets
    assert max(targets) < len(page.states)
    small = toy({"in_flight": 1}, properties=())
    whole = make_page(small, None, ("HELD", "everything"), states_max=100_000)
    assert whole.about.endswith(f"holds all {len(whole.states):,} states.")
    assert whole.path == []
    result = explore(small, engine="plain")
    assert len(whole.states) == result.states
    assert not any(move.target == BEYOND for state in whole.states for move in state.moves)


def test_a_machine_is_clicked_through_by_its_picture(tmp_path, capsys):
    assert cli.run(["show", "shared_subscriptions/stream", "--html", str(tmp_path / "m.html")]) == 0
    assert capsys.readouterr().out == f"page: {tmp_path / 'm.html'}\n"
    fsm = catalogue.machine("shared_subscriptions/stream")
    page = machine_page(fsm, "")
    rows = sum(len(line.sources) for line in fsm.lines if line.kind != "refuse")
    assert sum(len(state.moves) for state in page.states) == rows
    seen = click_through(tmp_path / "m.html")
    assert seen["verdict"] == ["", "none"], "nothing was judged"
    assert seen["said"][0] == f"State 0 | {len(page.states[0].moves)}"
    assert seen["kept"] == [True] * 3
    last = len(page.states) - 1
    assert seen["said"][-1] == f"State {last} | {len(page.states[last].moves)}"


def test_the_command_writes_a_page_and_says_what_is_on_it(tmp_path, capsys):
    html = tmp_path / "page.html"
    words = ["explore", "sequence_windows", "--system", "rotation", "--engine", "plain", "--html", str(html)]
    assert cli.run([*words, "--states-max", "1000", "--shown-max", "50"]) == cli.Exit.INCONCLUSIVE
    assert "INCONCLUSIVE nothing broke in the first " in capsys.readouterr().out
    data = data_of(html)
    assert len(data["states"]) == 50
    assert data["name"] == "rotation"
    assert all(part < len(data["texts"]) for state in data["states"] for part in state["parts"])
    assert all(move[1] < len(data["events"]) for state in data["states"] for move in state["moves"])
    assert {move[2] for state in data["states"] for move in state["moves"]} <= {BEYOND, NOWHERE, *range(50)}
    assert cli.run(["explore", "sequence_windows", "--html", str(html)]) == cli.Exit.USAGE
    assert "a page is of one system; choose one: rotation, " in capsys.readouterr().err
    assert cli.run(["show", "--html", str(html)]) == cli.Exit.USAGE


def test_no_text_of_a_system_ends_the_data_of_its_page(tmp_path):
    from msgspec.structs import replace

    page = replace(machine_page(catalogue.machine("shared_subscriptions/stream"), ""), name="</script><b>")
    write_step_page(tmp_path / "m.html", page)
    assert data_of(tmp_path / "m.html")["name"] == "</script><b>"
