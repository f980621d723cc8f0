"""A page and JSON made from what others wrote: no control character stands in them raw."""

from __future__ import annotations

import msgspec

from statemachines.plain_text import plain_json
from statemachines.trace.parquet import TraceWriter
from statemachines_reports.page import part_of, write_page
from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import run_row
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

EVIL = "a\x1b[2J\x07\u202e\x9b\x7f\u2028"


def is_plain(text):
    return all(one.isprintable() or one in "\n\t" for one in text)


def test_json_says_the_same_and_is_plain():
    told = {"name": EVIL, EVIL: [1, EVIL, "ü\t\n"]}
    text = plain_json(told)
    assert is_plain(text)
    assert "\n" not in text
    assert msgspec.json.decode(text) == told
    assert plain_json({"a": "üß€"}) == '{"a":"üß€"}'


def test_the_page_and_the_summary_of_a_hostile_trace_are_plain(tmp_path):
    scenario = override(find_scenario("quiet"), ("shared_subscriptions.load.messages=40",))
    world = World(scenario, 1)
    outcome = world.run()
    assert outcome.is_held
    evil = [(*row[:5], row[5], *row[6:]) for row in world.rows]
    at = next(place for place, row in enumerate(evil) if row[4] == "send")
    evil[at] = tuple(f"{value}{EVIL}" if value == evil[at][3] else value for value in evil[at])
    with TraceWriter(tmp_path / "trace", "evil") as writer:
        writer.add(msgspec.structs.replace(run_row(scenario, outcome, 0), scenario=EVIL), evil)
    analysis = analyze(tmp_path / "trace", tmp_path / "out", spark=False)
    page = tmp_path / "index.html"
    write_page(page, f"Trace {EVIL}", EVIL, [part_of(EVIL, analysis)])
    for path in (page, tmp_path / "out" / "summary.json"):
        text = path.read_text()
        assert is_plain(text), path
        assert r"\u202e" in text, path
