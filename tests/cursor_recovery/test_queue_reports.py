"""Traces of the queue: simulated runs hold, each corruption is found, deaths are told, the ring is drawn."""

import json

import pyarrow.parquet as pq
import pytest
from short_trace import write_rows, write_run

from statemachines import registry
from statemachines_reports.columns import Segment, columns_of_run, read_columns
from statemachines_reports.cursor_recovery.report import (
    BEING_WRITTEN,
    LEFT,
    READABLE,
    Arc,
    draw_moments,
    ring_at,
)
from statemachines_reports.judge import NEUTRAL_CHECKS, Judges
from statemachines_reports.page import part_of, write_page
from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import campaign
from statemachines_sim.cursor_recovery.section import QueueSection
from statemachines_sim.fault import Fault
from statemachines_sim.override import override
from statemachines_sim.scenario import Phases, Scenario, find_scenario
from statemachines_sim.units import S

CR = "cursor_recovery"
JUDGES = Judges([registry.protocol(CR)])
OWN = ("reserved", "passed", "distance", "exclusive", "kept", "order", "contents", "requests", "words")
CAPACITY = 200
SHORT = Scenario(
    "short",
    CR,
    QueueSection(writers=2, readers=2, messages=80, capacity=CAPACITY, size=(0, 20), threshold_ms=500, batch=2),
    phases=Phases(safety_s=8.0, liveness_s=60.0),
)
DEATHS = (
    Fault("crash", 2 * S, S, "writer-1"),
    *(Fault("cut", at * S, S, name, amount=amount)
      for at, name, amount in ((3, "reader-1", 19), (4, "writer-2", 30), (5, "reader-2", 31), (6, "writer-1", 22))),
)  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A run with five deaths, in a file."""
    directory = tmp_path_factory.mktemp("trace")
    return write_run(directory, SHORT, 3, DEATHS)[0]


@pytest.fixture(scope="module")
def rows(trace):
    return pq.read_table(trace).to_pylist()


def segment_of(path, **parameters):
    (columns,) = read_columns(path)
    return Segment(columns, JUDGES.lookup, lambda run: {"settings": {"capacity": CAPACITY} | parameters})


def judged(path):
    segment = segment_of(path)
    return {name: check.judge(segment) for name, _, check in JUDGES.checks if name in OWN}


# -- corruptions ----------------------------------------------------------------------------------------------------


def of(rows, **wanted):
    """Places of rows with these values."""
    return [place for place, row in enumerate(rows) if all(row[key] == value for key, value in wanted.items())]


def drop_reserved(rows):
    del rows[of(rows, event="reserved")[5]]


def move_reserved(rows):
    row = rows[of(rows, event="reserved")[5]]
    row["first"] += 4


def drop_taken(rows):
    del rows[of(rows, event="taken")[4]]


def take_again(rows):
    places = of(rows, event="taken")
    rows.insert(places[6], dict(rows[places[4]]))


def reserve_far_ahead(rows):
    """No reader has moved anything when it is reserved."""
    first = of(rows, event="compare_and_swap", key="read_head")[0]
    last = of(rows, event="reserved")[-1]
    row = rows.pop(last)
    rows.insert(first, row)


def share_a_cursor(rows):
    """Two operations learn that they have the cursor that the first of them has."""
    takes = [place for place in of(rows, source="1_take_cursor", dest="1_clear_position") if rows[place]["first"] == 1]
    first = rows[takes[0]]["instance"]
    other = next(place for place in takes if rows[place]["machine"] == rows[takes[0]]["machine"]
                 and rows[place]["instance"].partition("~")[0] != first.partition("~")[0])  # fmt: skip
    asked = max(
        place for place in of(rows, event="compare_and_swap", instance=rows[other]["instance"]) if place < other
    )
    key = rows[max(p for p in of(rows, event="compare_and_swap", instance=first) if p < takes[0])]["key"]
    pair = [dict(rows[asked]) | {"key": key}, dict(rows[other])]
    del rows[other], rows[asked]
    rows[takes[0] + 1 : takes[0] + 1] = pair


def skip_what_was_acknowledged(rows):
    written = of(rows, event="write_done", key="written")[3]
    place = of(rows, event="taken", first=rows[written]["first"])[0]
    rows[place]["event"] = "skipped"


def take_from_before(rows):
    """A reader moved over an acknowledged block as a part of another one."""
    ranges = of(rows, event="taken")
    one, other = ranges[3], ranges[4]
    rows[one]["last"] = rows[other]["last"]
    del rows[other]


def deliver_again(rows):
    places = of(rows, event="read_done", key="delivered")
    rows.insert(places[5] + 1, dict(rows[places[2]]))


def deliver_in_disorder(rows):
    mine = [place for place in of(rows, event="read_done", key="delivered") if "reader-1~1/" in rows[place]["instance"]]
    rows[mine[0]]["first"], rows[mine[1]]["first"] = rows[mine[1]]["first"], rows[mine[0]]["first"]


def deliver_other_bytes(rows):
    copied = of(rows, event="copied", source="7_copy_data")[3]
    rows[copied]["key"] = "4:00000000"


def deliver_what_nobody_wrote(rows):
    place = of(rows, event="read_done", key="delivered")[3]
    rows[place]["first"] += 4


def find_an_older_head(rows):
    rows[of(rows, event="loaded", source="2_load_read_head")[-1]]["first"] = 0


def find_what_nobody_stored(rows):
    rows[of(rows, event="loaded", source="3_load_checksum")[5]]["first"] += 1


def ask_for_another_word(rows):
    """Both heads are at the beginning."""
    rows[of(rows, event="load", key="read_head")[0]]["key"] = "write_head"


def ask_for_another_access(rows):
    """The answer says that nothing was swapped."""
    rows[of(rows, event="load", key="read_head")[0]]["event"] = "compare_and_swap"


def copy_other_data_in(rows):
    rows[of(rows, event="copy_in")[2]]["key"] = "4:00000000"


CORRUPTIONS = [
    (find_an_older_head, {"words"}),
    (find_what_nobody_stored, {"words"}),
    (ask_for_another_word, {"requests"}),
    (ask_for_another_access, {"requests"}),
    (copy_other_data_in, {"requests"}),
    (drop_reserved, {"reserved", "contents"}),
    (move_reserved, {"reserved", "contents"}),
    (drop_taken, {"passed"}),
    (take_again, {"passed"}),
    (reserve_far_ahead, {"distance"}),
    (share_a_cursor, {"exclusive", "requests", "words"}),
    (skip_what_was_acknowledged, {"kept"}),
    (take_from_before, {"kept"}),
    (deliver_again, {"order"}),
    (deliver_in_disorder, {"order", "contents"}),
    (deliver_other_bytes, {"contents"}),
    (deliver_what_nobody_wrote, {"contents"}),
]


@pytest.mark.parametrize(("corrupt", "checks"), CORRUPTIONS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_corruption_is_found_by_its_checks_and_by_no_other(trace, rows, tmp_path, corrupt, checks):
    changed = [dict(row) for row in rows]
    corrupt(changed)
    verdicts = judged(write_rows(trace, tmp_path, changed))
    assert {name for name, verdict in verdicts.items() if len(verdict.run)} == checks
    for name in checks:
        assert verdicts[name].describe(0)


# -- deaths ---------------------------------------------------------------------------------------------------------


# -- the ring -------------------------------------------------------------------------------------------------------


def test_what_a_dead_writer_left_is_shown_so(trace, rows, tmp_path):
    place = of(rows, event="reserved")[3]
    block = rows[place]
    death = dict(rows[of(rows, kind="fault")[0]]) | {"node": block["node"], "t_ns": block["t_ns"]}
    columns = columns_of_run(write_rows(trace, tmp_path, [*(dict(row) for row in rows[: place + 1]), death]), 0)
    before, after = (ring_at(columns, {"settings": {"capacity": CAPACITY}}, at) for at in (place, place + 1))
    assert Arc(block["first"], block["last"], BEING_WRITTEN, block["instance"]) in before.arcs
    assert Arc(block["first"], block["last"], LEFT, block["instance"]) in after.arcs
    assert READABLE in {arc.state for arc in after.arcs}


def test_without_a_capacity_there_is_no_ring(trace):
    assert list(draw_moments(columns_of_run(trace, 0), {}, None)) == []


# -- all of it ------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_runs_of_the_queue_are_judged_and_the_page_shows_deaths_and_the_ring(tmp_path, engine):
    scenario = override(find_scenario("deaths"), ["cursor_recovery.messages=40"])
    campaign(scenario, range(2), out=tmp_path / "trace", processes=1)
    analysis = analyze(tmp_path / "trace", tmp_path / "out", spark=engine == "spark")
    assert analysis.is_held
    assert [check.name for check in analysis.checks] == [*NEUTRAL_CHECKS, *OWN, "monitors"]
    assert sum(line["deaths"] for line in analysis.tables["deaths"]) > 3
    assert {line["measure"] for line in analysis.tables["latencies"]} == {"reclaim"}
    write_page(tmp_path / "index.html", "Title", "lead", [part_of("Trace", analysis)])
    page = (tmp_path / "index.html").read_text()
    assert page.count('<svg class="ring"') == 2
    assert "Where processes died" in page
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "deaths" in json.dumps(summary)
