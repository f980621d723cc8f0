"""Traces of missed samples: simulated runs hold, each tampering is found by its check, what was missing adds up."""

from __future__ import annotations

from collections import Counter

import pyarrow.parquet as pq
import pytest
from short_trace import write_rows, write_run

from statemachines import registry
from statemachines_reports.columns import Segment, read_columns
from statemachines_reports.judge import Judges
from statemachines_reports.missed_samples.report import draw_stream, find, pending_of, streams_in, streams_of
from statemachines_reports.missed_samples.stream import MISSED, OPEN, RECOVERED, HeldNumbers, NumberRange, SampleStream
from statemachines_reports.page import part_of, write_page
from statemachines_reports.pipeline import analyze
from statemachines_reports.protocol import Latency, Tally
from statemachines_sim.campaign import campaign
from statemachines_sim.fault import Fault
from statemachines_sim.missed_samples.section import Beats, SampleSection
from statemachines_sim.scenario import Phases, Scenario, find_scenario
from statemachines_sim.units import S

MS = "missed_samples"
JUDGES = Judges([registry.protocol(MS)])
OWN = ("numbers", "once", "reported", "came", "given_up", "asked")
SHORT = Scenario(
    "short",
    MS,
    SampleSection(
        publishers=2, caches=1, subscribers=2, own_history=3, cache_history=3, beats=Beats.PERIODIC, burst=(1, 4)
    ),
    phases=Phases(safety_s=6.0, liveness_s=60.0),
)
FAULTS = (
    Fault("loss", S, 4 * S, rate=0.3),
    Fault("crash", 3 * S, S, "subscriber-2"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run in which samples are recovered, and reported: its trace, and what its own watch has counted."""
    directory = tmp_path_factory.mktemp("samples")
    return write_run(directory, SHORT, 5, FAULTS)


@pytest.fixture(scope="module")
def rows(made):
    return pq.read_table(made[0]).to_pylist()


def segment_of(path, pending=10_000):
    (columns,) = read_columns(path)
    return Segment(columns, JUDGES.lookup, lambda run: {"settings": {"recovery": {"pending": pending}}})


def judged(path, pending=10_000):
    segment = segment_of(path, pending)
    return {name: check.judge(segment) for name, _, check in JUDGES.checks if name in OWN}


def test_a_run_with_losses_holds_and_everything_is_looked_at(made):
    verdicts = judged(made[0])
    assert {name: len(verdict.run) for name, verdict in verdicts.items()} == dict.fromkeys(OWN, 0)
    assert all(verdict.checked >= 1 for verdict in verdicts.values())


@pytest.mark.parametrize(
    "name",
    ["random_loss", "comes_round", "late_with_history", "tail_by_period", "little_held", "one_stuck", "come_and_go"],
)
def test_what_is_found_in_a_trace_is_what_the_watch_of_the_run_has_counted(tmp_path, name):
    (outcome,) = campaign(find_scenario(f"{MS}/{name}"), range(1), out=tmp_path, processes=1)
    (path,) = tmp_path.glob("trace-*.parquet")
    pending = find_scenario(f"{MS}/{name}").own.recovery.pending
    assert {name: len(verdict.run) for name, verdict in judged(path, pending).items()} == dict.fromkeys(OWN, 0)
    streams = [stream for _, stream in streams_of(segment_of(path)).found]
    assert sum(stream.delivered for stream in streams) == outcome.tally["delivered"] > 100
    holes = [hole for stream in streams for hole in stream.holes]
    sizes = {kind: sum(hole.size for hole in holes if hole.outcome == kind) for kind in (RECOVERED, MISSED, OPEN)}
    assert sizes[MISSED] == outcome.tally["missed"]
    assert sizes[RECOVERED] > 0
    history = name == "late_with_history"
    assert (sum(stream.queries for stream in streams) == outcome.tally["queries"]) is not history


# -- tampering ------------------------------------------------------------------------------------------------------


def of(rows, **wanted):
    """Places of rows with these values."""
    return [place for place, row in enumerate(rows) if all(row[key] == value for key, value in wanted.items())]


def told(rows, event, count=0):
    """The place of one of what a subscriber told, well into the run."""
    return [place for place in of(rows, kind="tell", event=event) if rows[place]["first"] > 5][count]


def number_again(rows):
    rows[of(rows, event="stamped", instance="publisher-1~1")[7]]["first"] -= 1


def leave_a_number_out(rows):
    """NUMBERED."""
    rows[of(rows, event="stamped", instance="publisher-1~1")[7]]["first"] += 1


def number_from_the_second(rows):
    rows[of(rows, event="stamped", instance="publisher-1~1")[7]]["first"] = 1


def deliver_again(rows):
    rows[told(rows, "deliver")]["first"] -= 1


def leave_one_out(rows):
    del rows[told(rows, "deliver")]


def do_not_report(rows):
    del rows[told(rows, "missed")]


def deliver_what_never_came(rows):
    rows[told(rows, "deliver")]["last"] += 1_000


def deliver_what_was_missed(rows):
    rows[told(rows, "missed")]["event"] = "deliver"


def report_what_came(rows):
    rows[told(rows, "deliver")]["event"] = "missed"


def report_without_asking(rows):
    place = told(rows, "missed")
    instance = f"{rows[place]['instance']}:{rows[place]['key']}"
    ends = [one for one in of(rows, instance=instance) if rows[one]["event"] in ("query_ended", "query_timeout")]
    for one in sorted(ends, reverse=True):
        if one < place:
            del rows[one]


def ask_for_what_came(rows):
    rows[of(rows, kind="ask", event="query")[3]]["first"] -= 1


def ask_for_more_than_there_is(rows):
    place = of(rows, kind="ask", event="query")[3]
    rows[place]["first"] += 1


def ask_of_nothing(rows):
    """Right behind a delivery in order, where nobody misses anything."""
    place = told(rows, "deliver")
    asks = of(rows, kind="ask", event="query")
    rows.insert(place + 1, rows[asks[0]] | {name: rows[place][name] for name in ("run", "node", "instance", "key")})
    rows[place + 1]["first"] = rows[place]["last"] + 1


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (number_again, "numbers"),
        (leave_a_number_out, "numbers"),
        (number_from_the_second, "numbers"),
        (deliver_again, "once"),
        (leave_one_out, "reported"),
        (do_not_report, "reported"),
        (deliver_what_never_came, "came"),
        (deliver_what_was_missed, "came"),
        (report_what_came, "given_up"),
        (report_without_asking, "given_up"),
        (ask_for_what_came, "asked"),
        (ask_for_more_than_there_is, "asked"),
        (ask_of_nothing, "asked"),
    ],
)
def test_what_was_changed_in_a_trace_is_found_by_its_check(made, rows, tmp_path, change, check):
    mine = [dict(row) for row in rows]
    change(mine)
    assert len(judged(write_rows(made[0], tmp_path, mine))[check].run) >= 1


# -- streams --------------------------------------------------------------------------------------------------------


def test_what_comes_in_pieces_is_held_once():
    held = HeldNumbers()
    assert held.add(5, 9, 1) == 5
    assert held.add(3, 11, 2) == 4
    assert held.add(4, 10, 3) == 0
    assert held.add(20, 20, 4) == 1
    assert held.add(1, 30, 5) == 21 - 1
    assert held.parts == [(1, 2, 5), (3, 4, 2), (5, 9, 1), (10, 11, 2), (12, 19, 5), (20, 20, 4), (21, 30, 5)]
    assert 30 in held
    assert 31 not in held
    assert list(held.take(4, 10)) == [NumberRange(4, 4, 2), NumberRange(5, 9, 1), NumberRange(10, 10, 2)]
    assert held.parts == [(11, 11, 2), (12, 19, 5), (20, 20, 4), (21, 30, 5)]
    assert list(held.take(12, 19)) == [NumberRange(12, 19, 5)]
    assert held.parts == [(20, 20, 4), (21, 30, 5)]
    assert 10 not in held


def test_a_hole_lasts_from_when_it_showed_until_it_is_told():
    stream = SampleStream("s", 10)
    stream.step(1, "sample", 0, 0)
    stream.tell_range(2, "deliver", 0, 0)
    stream.step(3, "sample", 3, 3)
    stream.ask(4, 1, 256)
    stream.step(5, "heartbeat", -1, 5)
    stream.step(6, "sample", 1, 1)
    stream.tell_range(7, "deliver", 1, 1)
    stream.step(8, "sample", 3, 3)
    stream.step(9, "query_ended", -1, -1)
    stream.tell_range(10, "missed", 2, 2)
    stream.tell_range(11, "deliver", 3, 3)
    stream.end()
    found = [(hole.first, hole.size, hole.since, hole.until, hole.cause, hole.outcome) for hole in stream.holes]
    assert found == [
        (1, 1, 3, 7, "sample", RECOVERED),
        (2, 1, 3, 10, "sample", MISSED),
        (4, 2, 5, -1, "heartbeat", OPEN),
    ]
    assert (stream.wrong, stream.again, stream.queries, stream.delivered) == ([], 1, 1, 3)


def test_what_only_a_heartbeat_has_told_of_is_missing_since_then():
    stream = SampleStream("s", 10)
    stream.step(1, "heartbeat", -1, 2)
    stream.ask(2, 0, 255)
    stream.step(3, "heartbeat", -1, 4)
    stream.step(4, "query_timeout", -1, -1)
    stream.tell_range(5, "missed", 0, 1)
    stream.step(6, "sample", 2, 2)
    stream.tell_range(7, "deliver", 2, 2)
    stream.end()
    found = [(hole.first, hole.size, hole.since, hole.until, hole.outcome) for hole in stream.holes]
    assert found == [(0, 2, 1, 5, MISSED), (2, 1, 1, 7, RECOVERED), (3, 2, 3, -1, OPEN)]
    assert stream.wrong == []


def test_holes_that_showed_apart_are_told_apart():
    stream = SampleStream("s", 10)
    stream.step(1, "sample", 0, 0)
    stream.tell_range(2, "deliver", 0, 0)
    stream.step(3, "heartbeat", -1, 2)
    stream.step(4, "sample", 6, 6)
    stream.ask(5, 1, 256)
    stream.step(6, "query_ended", -1, -1)
    stream.tell_range(7, "missed", 1, 4)
    stream.end()
    found = [(hole.first, hole.size, hole.since, hole.cause, hole.outcome) for hole in stream.holes]
    assert found == [(1, 2, 3, "heartbeat", MISSED), (3, 2, 4, "sample", MISSED), (5, 1, 4, "sample", OPEN)]
    assert stream.wrong == []


def test_what_is_open_at_the_end_lies_between_what_has_come():
    stream = SampleStream("s", 10)
    stream.step(1, "sample", 0, 0)
    stream.tell_range(2, "deliver", 0, 0)
    stream.step(3, "sample", 3, 4)
    stream.step(4, "sample", 6, 6)
    stream.step(5, "heartbeat", -1, 7)
    stream.end()
    found = [(hole.first, hole.size, hole.since, hole.outcome) for hole in stream.holes]
    assert found == [(1, 2, 3, OPEN), (5, 1, 4, OPEN), (7, 1, 5, OPEN)]


def test_where_nobody_tells_how_much_is_held_only_a_sample_makes_a_hole_give_way():
    stream = SampleStream("s", pending_of({}))
    stream.step(1, "sample", 0, 0)
    stream.tell_range(2, "deliver", 0, 0)
    stream.step(3, "sample", 2, 2)
    stream.step(4, "heartbeat", -1, 2)
    stream.tell_range(5, "missed", 1, 1)
    assert [one.check for one in stream.wrong] == ["given_up"]


@pytest.mark.parametrize("told", [None, [], {}, {"recovery": 3}, {"recovery": {"pending": "many"}}])
def test_settings_of_a_strange_kind_say_nothing(told):
    assert pending_of({"settings": told}) is None
    assert pending_of({"settings": {"recovery": {"pending": 3}}}) == 3


def test_what_showed_after_the_query_was_not_asked_for():
    for last, wrong in ((1, []), (2, ["given_up"])):
        stream = SampleStream("s", 10)
        stream.step(1, "heartbeat", -1, 1)
        stream.ask(2, 0, 255)
        stream.step(3, "query_ended", -1, -1)
        stream.step(4, "heartbeat", -1, 2)
        stream.tell_range(5, "missed", 0, last)
        assert [one.check for one in stream.wrong] == wrong


def test_what_was_never_heard_of_is_not_reported():
    stream = SampleStream("s", 10)
    stream.step(1, "sample", 0, 0)
    stream.tell_range(2, "deliver", 0, 0)
    stream.step(3, "query_ended", -1, -1)
    stream.tell_range(4, "missed", 1, 1)
    stream.end()
    assert [one.check for one in stream.wrong] == ["given_up"]
    assert stream.holes == []


def test_what_has_come_is_not_asked_for():
    stream = SampleStream("s", 10)
    stream.step(1, "sample", 0, 0)
    stream.tell_range(2, "deliver", 0, 0)
    stream.step(3, "sample", 1, 2)
    stream.ask(4, 1, 256)
    stream.end()
    assert [one.check for one in stream.wrong] == ["asked"]


def test_the_oldest_hole_gives_way_only_where_more_is_held_than_there_is_room_for():
    for pending, wrong in ((1, []), (2, ["given_up"]), (None, [])):
        stream = SampleStream("s", pending)
        stream.step(1, "sample", 0, 0)
        stream.tell_range(2, "deliver", 0, 0)
        stream.step(3, "sample", 2, 3)
        stream.tell_range(4, "missed", 1, 1)
        stream.tell_range(5, "deliver", 2, 3)
        stream.end()
        assert [one.check for one in stream.wrong] == wrong


def test_a_stream_that_was_forgotten_begins_anew(made, rows, tmp_path):
    """Numbers that were told before are no repeat."""
    mine = [dict(row) for row in rows if row["instance"].startswith("subscriber-1~1")]
    end = next(place for place in range(len(mine) // 2, len(mine)) if mine[place]["machine"] == f"{MS}/source")
    mine[end]["dest"] = "gone"
    source = mine[end]["instance"]
    again = [row for row in mine[:end] if source in (row["instance"], f"{row['instance']}:{row['key']}")]
    path = write_rows(made[0], tmp_path, [*mine[: end + 1], *map(dict, again)])
    assert len(judged(path)["once"].run) == 0
    mine[end]["dest"] = "live"
    assert len(judged(write_rows(made[0], tmp_path, [*mine[: end + 1], *map(dict, again)]))["once"].run) > 0


# -- what is measured -----------------------------------------------------------------------------------------------


def test_each_hole_is_measured_from_when_it_showed(made, rows):
    segment = segment_of(made[0])
    times = [row["t_ns"] for row in rows]
    holes = [hole for _, stream in streams_of(segment).found for hole in stream.holes if hole.until >= 0]
    waited = sorted(times[hole.until] - times[hole.since] for hole in holes)
    found = list(find(segment))
    assert sorted(one.value_ns for one in found if isinstance(one, Latency)) == waited
    sums = Counter()
    for one in found:
        if isinstance(one, Tally):
            sums[one.name] += one.value
    again = sum(stream.again for _, stream in streams_of(segment).found)
    assert (sums["brought"], sums["again"]) == (sums["recovered"] + again, again)
    assert again > 0


def test_runs_are_read_apart_and_strangers_are_counted(tmp_path):
    outcomes = campaign(find_scenario(f"{MS}/made_up"), range(2), out=tmp_path, processes=1)
    (path,) = tmp_path.glob("trace-*.parquet")
    assert {name: len(verdict.run) for name, verdict in judged(path).items()} == dict.fromkeys(OWN, 0)
    found = [one for one in find(segment_of(path)) if isinstance(one, Tally)]
    for name in ("delivered", "turned_away"):
        assert [one.value for one in found if one.name == name] == [one.tally[name] for one in outcomes]


# -- the whole ------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_became_of_what_was_missing(made, tmp_path):
    analysis = analyze(made[0].parent, tmp_path / "out", spark=False)
    assert analysis.is_held
    outcomes = {line["outcome"] for line in analysis.tables["holes"]}
    assert {RECOVERED, MISSED} <= outcomes
    (total,) = analysis.tables["scenarios"]
    assert (total["delivered"], total["missed"]) == (made[1]["delivered"], made[1]["missed"])
    assert total["amplification"] >= 1
    measured = {line["measure"]: line["measured"] for line in analysis.tables["latencies"] if line["scenario"] == "*"}
    assert measured.keys() == {"recovery", "report"}
    write_page(tmp_path / "index.html", "Title", "lead", [part_of("Trace", analysis)])
    page = (tmp_path / "index.html").read_text()
    assert "What became of missing samples" in page
    assert "A stream with holes" in page


def test_a_stream_without_holes_is_not_drawn(made):
    columns = segment_of(made[0]).columns
    (drawing,) = draw_stream(columns, {}, None)
    assert drawing.svg.count("<rect") > 5
    for _, stream in streams_in(columns, lambda run: {}).found:
        stream.holes.clear()
    assert list(draw_stream(columns, {}, None)) == []
