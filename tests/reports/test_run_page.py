"""The page tells one run: its verdict, how to make it again, and what broke first, before what came of it."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from statemachines import __version__
from statemachines.trace.parquet import TraceWriter
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.draw_timeline import LEFT, MOST_FAULTS, NAME, RIGHT, WIDTH, draw
from statemachines_reports.page import head_of, list_violations, part_of, write_page
from statemachines_reports.pipeline import analyze
from statemachines_reports.run_story import NO_FAULT, DeliveredRange, FaultMark, RunStory, _repeated
from statemachines_sim.campaign import run_row
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

SET = ("shared_subscriptions.load.messages=60",)


@pytest.fixture(scope="module")
def world():
    scenario = override(find_scenario("quiet"), SET)
    world = World(scenario, 7)
    return world, world.run()


def page_of(world, folder, change=lambda rows: rows, outcome=None):
    """The page of the run, its rows changed; and the analysis."""
    made, held = world
    with TraceWriter(folder / "trace", "quiet") as writer:
        writer.add(run_row(made.scenario, outcome or held, 0, SET), change(list(made.rows)))
    analysis = analyze(folder / "trace", folder / "out", spark=False)
    write_page(folder / "index.html", "A run", "of a test", [part_of("Trace", analysis)])
    return (folder / "index.html").read_text(encoding="utf-8"), analysis


def deliver_again_and_step_astray(rows):
    """Late in the run a step that no table has, which the first check finds; before it a second delivery."""
    tell = next(place for place, row in enumerate(rows) if row[4:6] == ("tell", "deliver"))
    step = max(place for place, row in enumerate(rows) if row[4] == "step" and row[2].endswith("/leader"))
    rows[step] = (*rows[step][:8], 0, *rows[step][9:])
    return [*rows[: tell + 1], rows[tell], *rows[tell + 1 :]]


def test_what_broke_first_stands_first_whatever_check_found_it(world, tmp_path):
    page, analysis = page_of(world, tmp_path, deliver_again_and_step_astray)
    assert next(check.name for check in analysis.checks if not check.held) == "rows"
    (first, *_), listed = list_violations(analysis, 0), re.findall(r"<li>.*?</li>", page)
    assert first["check"] == "duplicates"
    assert 'class="broken">duplicates</b>' in listed[0]
    assert sum('class="broken">rows</b>' in line for line in listed[1:]) == 1
    assert "rows were written" in listed[-1], "one is too many: what no row shows stands at the end"
    seqs = [int(re.search(r"row (\d+)", line).group(1)) for line in listed[:-1]]
    assert seqs == sorted(seqs)
    assert "first violation, " in page
    assert re.search(r"<td>no fault between the two</td><td class=\"n\">\d+</td>", page)
    assert page.index("VIOLATED") < page.index("What happened, in run 0") < page.index("What was checked")


def test_the_page_begins_with_the_verdict_and_what_makes_the_run_again(world, tmp_path):
    page, analysis = page_of(world, tmp_path)
    head = head_of(analysis)
    assert head.verdict == "HELD"
    made = f"gapless simulate shared_subscriptions/quiet --seed 7 --set {SET[0]} --trace DIR"
    assert head.command == made
    assert dict(head.facts)["seed"] == "7"
    assert dict(head.facts)["judged by"] == f"gapless {__version__}, local"
    assert head.settings["load.messages"] == "60"
    first = re.sub(r"<[^>]+>", " ", page[page.index("<body>") : page.index("What was checked")])
    for text in ("HELD", "scenario", "quiet", made, "configuration:", "What happened, in run 0: quiet, seed 7"):
        assert text in first
    assert "What is wrong" not in page
    assert "torn lines" not in page, "what is nought is not shown"
    assert page.count('<svg class="timeline"') == 1
    assert "took no step" in page
    assert len(page) < 1_000_000


def test_what_a_monitor_said_is_listed_too(world, tmp_path):
    outcome = msgspec.structs.replace(world[1], monitor="S5", detail="two at a time")
    page, analysis = page_of(world, tmp_path, outcome=outcome)
    assert (
        list_violations(analysis, 0)
        == [{"check": "monitor, while it ran", "seq": -1, "detail": "S5: two at a time", "at": ""}]
        or list_violations(analysis, 0)[0]["detail"] == "S5: two at a time"
    )
    assert "at the end</span>" in page
    assert head_of(analysis).sentence.startswith("monitors in 1 run")


def test_what_comes_again_is_counted_under_the_last_fault_between():
    faults = [FaultMark(10, 10, "kill", "a"), FaultMark(20, 20, "pause", "b"), FaultMark(40, 40, "loss", "")]
    rows = [(5, "s", 0, 4), (7, "s", 4, 4), (15, "s", 0, 1), (30, "s", 1, 3), (35, "t", 0, 4), (50, "t", 4, 5)]
    deliveries = [DeliveredRange(row, row, stream, "n", first, last) for row, stream, first, last in rows]
    assert _repeated(deliveries, faults) == {"pause of b": 3, "kill of a": 2, NO_FAULT: 1, "loss": 1}
    assert _repeated([deliveries[0]._replace(last=10**9)], faults) is None
    assert np.sum([one.messages for one in deliveries]) == 5 + 1 + 2 + 3 + 5 + 2


def test_a_timeline_stays_small_and_says_what_it_leaves_out():
    deliveries = [DeliveredRange(row, row * 1000, f"s{row % 20}", f"n{row % 3}", row, row) for row in range(30_000)]
    faults = [FaultMark(row, row * 1000, "kill", f"n{row % 3}") for row in range(0, 30_000, 10)]
    drawn = draw(RunStory(0, 30_000_000, deliveries, faults, {}), 15_000_000)
    assert len(drawn.svg) < 900_000
    assert "6 streams with fewer deliveries are left out" in drawn.caption
    assert "first violation, 15 ms" in drawn.svg
    assert drawn.svg.count("<circle") == MOST_FAULTS
    assert draw(RunStory(0, 0, [], [], {})) is None


def test_the_name_of_a_fault_at_the_right_edge_stands_before_its_mark():
    faults = [FaultMark(at, at, "hold_back", "node-3") for at in (100, 500, 970, 995, 1000)]
    svg = draw(RunStory(0, 1000, [DeliveredRange(1, 1, "s", "n", 0, 4)], faults, {})).svg
    found = re.findall(r'<text class="name" x="([\d.]+)" y="(\d+)"( style="text-anchor:end")?>hold_back node-3<', svg)
    width = NAME * len("hold_back node-3")
    spans = [(int(y), float(x) - width if end else float(x)) for x, y, end in found]
    assert len(spans) == len(faults)
    assert all(x > LEFT and x + width <= WIDTH - RIGHT for _, x in spans)
    for row in {row for row, _ in spans}:
        of = sorted(x for y, x in spans if y == row)
        assert all(one + width < other for one, other in pairwise(of))


CLICKS = """<script>
const plot = document.querySelector("svg.plot"), bar = document.querySelector(".zoom");
const first = plot.querySelector("rect.bar"), ticks = [...document.querySelectorAll(".timeline text.tick")];
const x = () => Number(first.getAttribute("x")), wide = () => Number(first.getAttribute("width"));
const seen = { whole: [x(), wide()] };
bar.children[0].click();
bar.children[0].click();
seen.closer = [x(), wide(), ticks[0].textContent, ticks[5].textContent];
const frame = document.querySelector("svg.timeline").parentElement;
frame.dispatchEvent(new KeyboardEvent("keydown", { key: "0" }));
seen.again = [x(), wide()];
document.body.textContent = JSON.stringify(seen);
</script>"""


def test_the_timeline_is_looked_at_closer_with_buttons_and_keys(world, tmp_path):
    page_of(world, tmp_path)
    path = tmp_path / "index.html"
    path.write_text(path.read_text(encoding="utf-8").replace("</body>", CLICKS + "</body>"), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", path.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    seen = json.loads(re.search(r"<body>(\{.*\})\s*</body>", shown).group(1))
    assert seen["again"] == seen["whole"]
    assert seen["closer"][1] == pytest.approx(4 * seen["whole"][1])
    begin, end = (float(text.split()[0]) for text in seen["closer"][2:])
    whole_s = float(re.search(r'data-span-ns="(\d+)"', path.read_text(encoding="utf-8")).group(1)) / 1e9
    assert (begin, end) == (pytest.approx(whole_s * 3 / 8, rel=0.01), pytest.approx(whole_s * 5 / 8, rel=0.01))


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [(0, "0 s"), (7, "7 ns"), (1.5e9, "1.5 s"), (999.4e9, "999 s"), (999.7e9, "1,000 s"), (3.6e12, "3,600 s")],
)
def test_durations_read_as_people_write_them(value_ns, text):
    assert format_ns(value_ns) == text


def test_a_page_is_printed_in_ink_on_paper_whatever_the_system_looks_like(world, tmp_path):
    page_of(world, tmp_path)
    style = re.search(r"<style>(.*?)</style>", (tmp_path / "index.html").read_text(encoding="utf-8"), re.DOTALL).group(
        1
    )
    for rule in re.findall(r"@media ([^{]*prefers-color-scheme[^{]*)", style):
        assert rule.startswith("screen and ")


def test_a_run_of_which_nothing_can_be_drawn_has_a_page(world, tmp_path):
    """As of logs of which all but the heads are lost: rows are left, and none of them makes a line of the diagram."""
    page, _ = page_of(world, tmp_path, lambda rows: [row for row in rows if row[4] == "deliver"])
    assert '<svg class="sequence' not in page
    assert "What was checked" in page
