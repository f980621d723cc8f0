"""Traces of sequence windows: simulated runs hold, each tampering is found by its check, losses add up."""

import json

import pyarrow.parquet as pq
import pytest
from long_cases import mark_long
from msgspec.structs import replace
from short_trace import write_rows, write_run

from statemachines import registry
from statemachines_reports.columns import Segment, columns_of_run, read_columns
from statemachines_reports.judge import NEUTRAL_CHECKS, Judges
from statemachines_reports.page import part_of, write_page
from statemachines_reports.pipeline import analyze
from statemachines_reports.sequence_windows.receiver_log import parts_of
from statemachines_reports.sequence_windows.report import (
    Loss,
    draw_losses,
    draw_run,
)
from statemachines_sim.campaign import campaign
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Net, Phases, Scenario, find_scenario
from statemachines_sim.sequence_windows.section import WindowSection
from statemachines_sim.units import S

SW = "sequence_windows"
JUDGES = Judges([registry.protocol(SW)])
OWN = ("numbers", "once", "exact", "alarms", "detected", "limits", "crowds", "joins", "advisories")
SHORT = Scenario(
    "short", SW, WindowSection(subjects=2, publishers=2, publish_ms=(50, 600), converge_s=(6.0,), resubscribe_s=(2, 5)),
    network=Net(fifo=True), phases=Phases(safety_s=20.0, liveness_s=60.0),
)  # fmt: skip
FAULTS = (
    Fault("unsettled", 1, 6 * S - 2, rate=0.3),
    Fault("loss", 12 * S, 3 * S, rate=0.3),
    Fault("duplicate", 8 * S, 2 * S, rate=0.3),
    Fault("crash", 11 * S, S, "receiver-2"),
    Fault("crash", 15 * S, S, "publisher-2"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with losses, copies and deaths: its trace, and what its own watch has counted."""
    directory = tmp_path_factory.mktemp("losses")
    return write_run(directory, SHORT, 5, FAULTS)


@pytest.fixture(scope="module")
def rows(made):
    return pq.read_table(made[0]).to_pylist()


def segment_of(path):
    (columns,) = read_columns(path)
    return Segment(columns, JUDGES.lookup, lambda run: {"settings": {"network": {"fifo": True}}})


def judged(path):
    segment = segment_of(path)
    return {name: check.judge(segment) for name, _, check in JUDGES.checks if name in OWN}


def test_a_run_with_losses_holds_and_everything_is_looked_at(made):
    verdicts = judged(made[0])
    assert {name: len(verdict.run) for name, verdict in verdicts.items()} == dict.fromkeys(OWN, 0)
    assert all(verdict.checked >= 1 for name, verdict in verdicts.items() if name != "crowds")
    assert sum(verdict.checked for verdict in verdicts.values()) > 500


# -- tampering ------------------------------------------------------------------------------------------------------


def of(rows, **wanted):
    """Places of rows with these values."""
    return [place for place, row in enumerate(rows) if all(row[key] == value for key, value in wanted.items())]


def number_again(rows):
    one, other = of(rows, event="stamped", instance=rows[of(rows, event="stamped")[0]]["instance"])[3:5]
    rows[other]["first"] = rows[one]["first"]


def deliver_again(rows):
    place = of(rows, event="judged", key="repeat")[0]
    rows[place]["key"] = "next"


def drop_as_if_it_had_come(rows):
    place = of(rows, event="judged", key="next")[20]
    rows[place]["key"] = "repeat"


def tell_one_more(rows):
    place = of(rows, event="judged", key="skip")[2]
    rows[place]["grant"] += 1


def tell_of_nothing(rows):
    place = of(rows, event="judged", key="next")[20]
    rows[place]["key"], rows[place]["grant"] = "skip unknown", 1


def keep_a_loss_to_oneself(rows):
    place = of(rows, event="judged", key="skip")[2]
    rows[place]["key"], rows[place]["grant"] = "next", 0


def lose_one_more(rows):
    """The network lost another message, of which nobody was told."""
    nexts = [rows[place] for place in of(rows, event="judged", key="next")]
    told = next(one for one in nexts if one["first"] > 3)
    carried = next(row for row in rows if row["kind"] == "deliver" and row["node"] == told["node"]
                   and (row["term"], row["first"], row["peer"]) == (told["term"], told["first"] - 1, told["peer"])
                   and f"/{row['key']}/" in told["instance"])  # fmt: skip
    delivered = of(rows, event="judged", instance=told["instance"], term=told["term"], first=told["first"] - 1)
    for place in delivered:
        rows[place]["event"] = "unjudged"
    place = rows.index(carried)
    rows[place] = dict(carried) | {
        "kind": "drop", "node": told["peer"].partition("~")[0], "instance": told["peer"], "peer": told["node"],
    }  # fmt: skip


def begin_anew(rows):
    place = next(at for at in of(rows, event="judged", key="next") if rows[at]["first"] == 4)
    rows[place]["key"] = "first"


def verify_what_was_lost(rows):
    """The network converges between the loss and the join, and has lost nothing since."""
    lost = {}
    for row in rows:
        if row["kind"] == "drop" and row["peer"] != "receiver-2":  # which was dead for a while
            lost.setdefault((row["peer"], row["instance"], row["key"], row["term"]), row["first"])
    for place in of(rows, event="joining", key="unverified"):
        at = next(at for at in range(place - 1, 0, -1) if rows[at]["event"] == "judged")
        _, subject = parts_of(rows[at]["instance"], rows[at]["peer"])
        node = rows[at]["node"]
        first = lost.get((node, rows[at]["peer"], subject, rows[at]["term"]), 1 << 40)
        if first < rows[at]["first"]:
            rows[place]["key"] = "verified"
            told = rows.pop(next(one for one in of(rows, kind="step", event="converged") if rows[one]["node"] == node))
            rows[at - 1 : at - 1] = [rows.pop(of(rows, kind="fault", event="converged")[0]), told]
            return
    raise AssertionError("the run has no such join")


def advise_too_soon(rows):
    places = of(rows, event="advisory", node="application-1")
    rows[places[1]]["t_ns"] = rows[places[0]]["t_ns"] + S - 1


def advise_before_the_last_loss(rows):
    """Of all but a loss that came earlier."""
    for place in of(rows, event="advisory"):
        node, at = rows[place]["node"], rows[place]["t_ns"]
        told = [row for row in rows[:place] if row["event"] == "judged" and row["node"] == node and row["grant"]]
        if told[-1]["t_ns"] < at and rows[place]["grant"] > told[-1]["grant"]:
            rows[place]["grant"] -= told[-1]["grant"]
            return
    raise AssertionError("the run has no such advisory")


def advise_of_less(rows):
    rows[of(rows, event="advisory")[0]]["grant"] -= 1


TAMPERINGS = [
    (number_again, {"numbers"}),
    (deliver_again, {"once"}),
    (drop_as_if_it_had_come, {"once"}),
    (tell_one_more, {"exact", "advisories"}),
    (tell_of_nothing, {"alarms"}),
    (keep_a_loss_to_oneself, {"detected", "advisories"}),
    (lose_one_more, {"detected"}),
    (begin_anew, {"limits"}),
    (verify_what_was_lost, {"joins"}),
    (advise_too_soon, {"advisories"}),
    (advise_of_less, {"advisories"}),
    (advise_before_the_last_loss, {"advisories"}),
]


@pytest.mark.parametrize(("tamper", "checks"), TAMPERINGS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_tampering_is_found_by_its_checks_and_by_no_other(made, rows, tmp_path, tamper, checks):
    changed = [dict(row) for row in rows]
    tamper(changed)
    verdicts = judged(write_rows(made[0], tmp_path, changed))
    assert {name for name, verdict in verdicts.items() if len(verdict.run)} == checks
    for name in checks:
        assert verdicts[name].describe(0)


@pytest.mark.long
def test_a_join_rests_on_the_convergence_that_its_receiver_was_told_of(tmp_path):
    """The network converges anew after the loss, and the message comes before the operator's word does."""
    own = replace(SHORT.own, subjects=6, publish_ms=(20, 60), converge_s=(6.0, 16.0), resubscribe_s=(0, 0))
    faults = (Fault("loss", 15 * S, S - 2, rate=0.9), Fault("crash", 15_700_000_000, S // 10, "publisher-2"))
    path, _ = write_run(tmp_path, replace(SHORT, own=own), 0, faults)
    verdicts = judged(path)
    assert verdicts["joins"].checked > 5
    assert not any(len(verdict.run) for verdict in verdicts.values())


# -- parts ----------------------------------------------------------------------------------------------------------


def test_losses_over_time_are_drawn_by_publisher_and_subject(made):
    (drawing,) = draw_run(columns_of_run(made[0], 0), {}, None)
    assert str(drawing.svg).count("<rect") > 20
    assert "publisher-1~1 subject.01" in str(drawing.svg)
    bad = str(draw_losses([Loss(0, 3, "<p>", "s", "missed", 4), Loss(0, 3, "<p>", "s", "told", 1)], 10))
    assert "&lt;p&gt; s" in bad
    assert "second 3: 5" in bad
    assert bad.count("fill:var(--red)") == 2, "the cell, and the legend"
    assert bad.count("<text ") == bad.count('<text x="') == bad.count("text-anchor:"), (
        "the page centres what says nothing"
    )


@pytest.mark.long
@pytest.mark.parametrize("engine", mark_long(("local", "spark"), "spark"))
def test_losses_are_judged_and_the_page_has_both_confusion_tables(tmp_path, engine):
    trace = tmp_path / "trace"
    campaign(find_scenario(f"{SW}/rarely"), range(2), out=trace, processes=1)
    campaign(find_scenario(f"{SW}/overtaken"), range(1), out=trace, processes=1, first_run=2)
    analysis = analyze(trace, tmp_path / "out", spark=engine == "spark")
    assert analysis.is_held
    assert [check.name for check in analysis.checks] == [*NEUTRAL_CHECKS, *OWN, "monitors"]
    assert {check.name for check in analysis.checks if check.waived} == {"exact", "alarms"}
    ordered = [line for line in analysis.tables["confusion"] if line["ordered"]]
    assert {line["scenario"] for line in ordered} == {"rarely"}
    assert all(line["right"] for line in ordered)
    assert {line["outcome"] for line in analysis.tables["losses"]} >= {"told", "unknown"}
    times = analysis.tables["loss_over_time"]
    assert sum(line["messages"] for line in times) == sum(line["messages"] for line in analysis.tables["losses"])
    write_page(tmp_path / "index.html", "Title", "lead", [part_of("Trace", analysis)])
    page = (tmp_path / "index.html").read_text()
    for words in ("Losses found against losses that happened", "messages overtake each other", "What became of lost",
                  "Who lost most", '<svg class="losses"'):  # fmt: skip
        assert words in page
    assert "confusion" in json.dumps(json.loads((tmp_path / "out" / "summary.json").read_text()))
