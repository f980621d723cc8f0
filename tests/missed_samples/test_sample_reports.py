"""Traces of missed samples: simulated runs hold, each tampering is found by its check, what was missing adds up."""

import pyarrow.parquet as pq
import pytest
from short_trace import write_rows, write_run

from statemachines import registry
from statemachines_reports.columns import Segment, read_columns
from statemachines_reports.judge import Judges
from statemachines_reports.missed_samples.report import HeldNumbers, NumberRange, SampleStream
from statemachines_reports.protocol import Findings
from statemachines_sim.fault import Fault
from statemachines_sim.missed_samples.section import Beats, SampleSection
from statemachines_sim.scenario import Phases, Scenario
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
    rows[place]["first"] += 1_000


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


def test_what_was_never_heard_of_is_not_reported():
    findings = Findings()
    stream = SampleStream("s", 10, findings)
    stream.step(1, "sample", 0, 0)
    stream.tell_range(2, "deliver", 0, 0)
    stream.step(3, "query_ended", -1, -1)
    stream.tell_range(4, "missed", 1, 1)
    stream.end()
    assert [(check, list(rows)) for check, rows in findings.wrong.items()] == [("given_up", [4])]
    assert stream.holes == []


# -- what is measured -----------------------------------------------------------------------------------------------


# -- the whole ------------------------------------------------------------------------------------------------------
