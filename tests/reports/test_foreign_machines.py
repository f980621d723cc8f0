"""Logs of machines, judged at the levels states and events: against damage, against a plain carrying of sets, and what
is said where nothing is possible any more."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign_logs import mapping, verdicts, write_logs

from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log import event_sets, judge_files, log_rows
from statemachines_reports.foreign_log.log_analysis import LogJudge
from statemachines_reports.foreign_log.machine_table import Symbol, load_machine

STATES = {
    "level": "states",
    "machine": "shop:make_order",
    "columns": {"event": "what", "state": "after", "source": "before", "instance": "order"},
    "from_start": True,
}
EVENTS = {
    "level": "events",
    "machine": "shop:make_order",
    "columns": {"event": "what", "instance": "order"},
    "from_start": True,
}
WALK = [("pay", "new", "paying"), ("pay", "paying", "paying"), ("ship", "paying", "shipped")]


@pytest.fixture(autouse=True)
def _beside_the_examples(monkeypatch):
    monkeypatch.syspath_prepend("examples")


def steps(walk=WALK, order="o-1", **more):
    return [
        {"order": order, "what": what, "before": before, "after": after, "at": 10 * place} | more
        for place, (what, before, after) in enumerate(walk)
    ]


def said(folder, given, **logs):
    found = judge_files(write_logs(folder, **logs), given)
    return found.verdict, [detail for one in found.checks for detail in one.details]


def test_each_step_is_judged_by_itself(tmp_path):
    assert verdicts(tmp_path, mapping(STATES), log=steps())[0] == "held"
    wrong = steps([*WALK[:1], ("ship", "paying", "cancelled"), *WALK[1:]])
    verdict, details = said(tmp_path, mapping(STATES), log=wrong)
    assert verdict == "VIOLATED"
    assert details[0] == (
        "log.ndjson line 2: order o-1: ship in paying: row 2 leads to shipped if is_covered (adopted); no guard holds: "
        "it stays in paying, and the log says cancelled"
    )
    assert details[1] == "log.ndjson line 3: order o-1 begins in paying, and was in cancelled"


def test_a_doubled_line_of_a_machine_is_doubted(tmp_path):
    walk = [("cancel", "new", "cancelled"), ("refund", "cancelled", "refunded")]
    doubled = steps(walk)
    doubled.append(doubled[1])
    for base in (STATES, EVENTS):
        timed = mapping(base, columns={"time": "at"}, time_unit="ms")
        assert verdicts(tmp_path, timed, log=doubled)[0] == "inconclusive", base
        assert verdicts(tmp_path, timed, log=steps([*walk, walk[1]]))[0] == "VIOLATED", base


def test_missing_lines_that_are_numbered_begin_anew(tmp_path):
    for base in (STATES, EVENTS):
        walk = [*WALK[:1], ("cancel", "paying", "cancelled"), ("refund", "cancelled", "refunded")]
        rows = [one | {"n": place} for place, one in enumerate(steps(walk))]
        given = mapping(base, columns={"number": "n"})
        assert verdicts(tmp_path, given, log=rows)[0] == "held"
        verdict, checks = verdicts(tmp_path, given, log=[rows[0], rows[2]])
        assert (verdict, checks["lines"]) == ("inconclusive", "inconclusive")
        assert verdicts(tmp_path, mapping(base), log=[rows[0], rows[2]])[0] == "VIOLATED"


def test_swapped_lines_are_no_run_of_the_machine_unless_times_say_that_they_are_swapped(tmp_path):
    swapped = steps()
    swapped[0], swapped[2] = swapped[2], swapped[0]
    for base in (STATES, EVENTS):
        assert verdicts(tmp_path, mapping(base), log=swapped)[0] == "VIOLATED"
        with pytest.raises(ConfigurationError, match="out of order, or of two runs"):
            verdicts(tmp_path, mapping(base, columns={"time": "at"}, time_unit="ms"), log=swapped)


def test_lines_of_two_processes_are_ordered_by_times_that_tell_them_apart(tmp_path):
    first, second = steps()[:2], steps()[2:]
    assert verdicts(tmp_path, mapping(EVENTS), a=second, b=first)[1]["unordered"] == "inconclusive"
    timed = {"columns": {"time": "at"}, "time_unit": "ms"}
    assert verdicts(tmp_path, mapping(EVENTS, **timed, clock_error_ms=9), a=second, b=first)[0] == "held"
    close = verdicts(tmp_path, mapping(EVENTS, **timed, clock_error_ms=10), a=second, b=first)
    assert close[1]["unordered"] == "inconclusive"


def test_what_was_possible_and_the_guard_that_was_false_are_named(tmp_path):
    rows = [{"order": 7, "what": "pay"}, {"order": 7, "what": "ship", "ok": False}, {"order": 7, "what": "refund"}]
    given = mapping(EVENTS, guards={"is_covered": "ok"})
    verdict, details = said(tmp_path, given, log=rows)
    assert verdict == "VIOLATED"
    assert details == [
        "log.ndjson line 3: order 7: refund is not possible in paying: 2 lines are legal, up to log.ndjson line 2; "
        "then refund in paying: row 10 refuses it (adopted); possible there: pay -> paying (adopted), "
        "ship [is_covered] -> shipped (adopted), cancel -> cancelled (adopted)"
    ]
    seen = mapping(EVENTS, guards={"is_covered": "ok"}, columns={"state": "now"})
    rows = [{"order": 7, "what": "pay", "now": "paying"}, {"order": 7, "what": "ship", "ok": False, "now": "shipped"}]
    verdict, details = said(tmp_path, seen, log=rows)
    assert "row 2 to shipped needs is_covered, which was false (adopted)" in details[0]
    assert "and the log says shipped" in details[0]


def test_a_set_beyond_the_bound_is_not_judged(tmp_path):
    walk = [("pay", "", ""), ("ship", "", ""), ("cancel", "", "")]
    verdict, checks = verdicts(tmp_path, mapping(EVENTS, sets_max=1), log=steps(walk))
    assert (verdict, checks["events"], checks["bounds"]) == ("inconclusive", "held", "inconclusive")
    assert verdicts(tmp_path, mapping(EVENTS), log=steps(walk))[0] == "held"


def carry_plainly(table, symbols, start):
    """One set after the other; how many rows are legal."""
    now = start
    for place, symbol in enumerate(symbols):
        now = {end for state in now for end in table.list_ends(symbol, state)}
        if not now:
            return place
    return len(symbols)


@pytest.mark.parametrize("piece", [3, 4_096])
def test_sets_that_are_carried_by_look_up_are_those_that_are_carried_plainly(tmp_path, monkeypatch, piece):
    """Random logs, most of them legal for a while; with pieces of three rows each long instance is cut,
    and rows are sorted in parts."""
    monkeypatch.setattr(event_sets, "PIECE_MIN", piece)
    monkeypatch.setattr(event_sets, "PIECE_MAX", piece)
    monkeypatch.setattr(log_rows, "PART", 100 * piece)
    table = load_machine("shared_subscriptions/borrower")
    symbols = [Symbol(event) for event in range(len(table.events))]
    chance = random.Random(piece)
    logs, broken = {}, {}
    for instance in range(60):
        now, walk = {table.initial}, []
        for _ in range(chance.randrange(1, 40)):
            ends = {one: {e for s in now for e in table.list_ends(one, s)} for one in symbols}
            likely = [one for one in symbols if ends[one] or chance.random() < 0.03]
            symbol = chance.choice(likely or symbols)
            now = ends[symbol] or now
            walk.append(symbol)
        logs[instance] = walk
        legal = carry_plainly(table, walk, {table.initial})
        if legal < len(walk):
            broken[instance] = legal
    rows = [(name, table.events[one.event]) for name, walk in logs.items() for one in walk]
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"order": [r[0] for r in rows], "what": [r[1] for r in rows]}), path)
    monkeypatch.setattr(event_sets, "SHOWN", 100)
    given = mapping(EVENTS, machine="shared_subscriptions/borrower")
    (check,) = judge_files([path], given).checks
    assert check.found == len(broken) > 5
    judge = LogJudge([path], given)
    whole = pa.concat_tables([part for part, _ in judge.map_file(0)])
    (tally,) = judge.judge_table(whole, "instance")
    found = {}
    for detail in tally.details:
        name = int(detail.split("order ")[1].split(":")[0])
        found[name] = 0 if "not even its first" in detail else int(detail.split(": ")[3].split(" ")[0])
    assert found == broken


def test_a_machine_may_be_declared_or_adopted_and_nothing_else():
    assert load_machine("borrower").states[load_machine("borrower").initial] == "connecting"
    assert load_machine("shop:make_order").guards == {"is_covered"}
    with pytest.raises(ConfigurationError, match="name a declared machine"):
        load_machine("shop:__name__")
    with pytest.raises(ConfigurationError, match="there is no module"):
        load_machine("nowhere:MACHINE")
