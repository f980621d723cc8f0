"""The judge: real and simulated traces hold, and every kind of corruption is found, by its own check."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from statemachines import catalogue, registry
from statemachines.kernel import ConfigurationError
from statemachines.trace import COLUMNS, fingerprint
from statemachines.trace.parquet import TraceWriter
from statemachines_reports import columns as columns_module
from statemachines_reports.columns import Segment, read_columns
from statemachines_reports.judge import Absent, Judges, list_used_rows, row_counts
from statemachines_reports.protocol import Finding
from statemachines_reports.shared_subscriptions.account import account_for
from statemachines_reports.shared_subscriptions.report import count_resends, list_latencies
from statemachines_reports.trace_set import TraceSet
from statemachines_sim.campaign import run_row
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

SS = "shared_subscriptions"
MACHINES = catalogue.machines(SS)
JUDGES = Judges([registry.protocol(SS)])
LOOKUP = JUDGES.lookup
MESSAGES = 500


def stormy(number: int) -> World:
    """A run of `storm` with a few messages: as many faults, and a fifth of the rows."""
    scenario = find_scenario("storm")
    load = replace(scenario.own.load, messages=MESSAGES)
    return World(replace(scenario, own=replace(scenario.own, load=load)), number)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stormy runs in a file."""
    directory = tmp_path_factory.mktemp("trace")
    with TraceWriter(directory, "storm") as writer:
        for number in range(2):
            world = stormy(number)
            outcome = world.run()
            writer.add(run_row(world.scenario, outcome, number), world.rows)
    return directory


def judged(path):
    segment = segment_of(path)
    return {name: check.judge(segment) for name, _, check in JUDGES.checks}


def segment_of(path):
    (columns,) = read_columns(path)
    return Segment(columns, LOOKUP, lambda run: {})


def wrong(path):
    return {check for check, verdict in judged(path).items() if len(verdict.run)}


@cache
def rows_of(path):
    """The table, and its rows as dicts: of all that these tests do it takes longest."""
    table = pq.read_table(path)
    return table, table.to_pylist()


def changed(trace, tmp_path, change):
    """The trace with its rows (a list of dicts) changed."""
    table, kept = rows_of(trace / "trace-storm.parquet")
    rows = [dict(row) for row in kept]
    change(rows)
    for number, row in enumerate(rows):
        row["seq"] = number
    path = tmp_path / "trace-changed.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    return path


def find(rows, **wanted):
    return next(number for number, row in enumerate(rows) if all(row[key] == value for key, value in wanted.items()))


def test_simulated_runs_hold(trace):
    verdicts = judged(trace / "trace-storm.parquet")
    assert {check for check, verdict in verdicts.items() if len(verdict.run)} == set()
    unchecked = {check for check, verdict in verdicts.items() if not verdict.checked}
    assert unchecked == {"faults", "replay"}, "no parameters, and no data"
    assert verdicts["acknowledged"].checked == 2 * MESSAGES


def another_row(rows):
    rows[find(rows, machine=f"{SS}/borrower", event="ping_response", kind="step")]["row"] = 3


def another_event(rows):
    rows[find(rows, machine=f"{SS}/assignment", event="update_progress")]["event"] = "take_back"


def unknown_machine(rows):
    rows[find(rows, machine=f"{SS}/session", kind="step")]["machine"] = f"{SS}/sessions"


def another_end(rows):
    rows[find(rows, machine=f"{SS}/borrower", event="leader_connect_response", dest="connected")]["dest"] = (
        "unsubscribing"
    )


def a_step_lost(rows):
    del rows[find(rows, machine=f"{SS}/borrower", event="leader_connect_response", dest="connected")]


def no_row_where_one_must_be(rows):
    rows[find(rows, machine=f"{SS}/borrower", event="start")]["row"] = -1


@pytest.mark.parametrize(
    ("corrupt", "checks"),
    [
        (another_row, {"rows"}),
        (another_event, {"rows"}),
        (unknown_machine, {"rows", "continuity"}),
        (another_end, {"rows", "continuity"}),
        (a_step_lost, {"continuity"}),
        (no_row_where_one_must_be, {"rows"}),
    ],
)
def test_a_corrupt_step_is_found(trace, tmp_path, corrupt, checks):
    assert checks <= wrong(changed(trace, tmp_path, corrupt)) <= {"rows", "continuity"}


@pytest.mark.parametrize("change", [lambda t_ns: None, lambda t_ns: t_ns - 10**15])
def test_rows_without_a_time_are_found(trace, tmp_path, change):
    """A constant less in every row is no clock that goes back."""
    path = changed(trace, tmp_path, lambda rows: [row.update(t_ns=change(row["t_ns"])) for row in rows])
    found = judged(path)["clocks"]
    assert len(found.run) == found.checked
    assert "no time" in found.describe(0)


@pytest.mark.parametrize(("timer", "found"), [("resend_timer", set()), ("heartbeat_timer", {"turns"})])
def test_timers_of_two_children_may_be_due_at_once_and_one_timer_is_not_due_twice(trace, tmp_path, timer, found):
    """A leader that resigns takes them, and its children do not: two equal rows stand behind each other."""

    def repeat(rows):
        row = find(rows, machine=f"{SS}/leader", kind="timer", event=timer, source="leading")
        rows.insert(row, dict(rows[row]))

    assert wrong(changed(trace, tmp_path, repeat)) == found


def test_two_owners_at_a_time_are_found(trace, tmp_path):
    def corrupt(rows):
        told = [row for row in rows if row["kind"] == "tell" and row["event"] == "deliver" and row["run"] == 0]
        first = told[0]
        later = next(row for row in told if row["key"] == first["key"] and row["instance"] != first["instance"])
        rows.insert(rows.index(later) + 1, {**first, "t_ns": later["t_ns"]})

    found = wrong(changed(trace, tmp_path, corrupt))
    assert "exclusivity" in found
    assert "duplicates" not in found or found >= {"exclusivity", "duplicates"}


def test_two_assignments_of_a_stream_are_found(trace, tmp_path):
    def corrupt(rows):
        place = find(rows, machine=f"{SS}/assignment", event="assign")
        again = dict(rows[place])
        again["instance"] = again["instance"].rpartition("#")[0] + "#999999"
        rows.insert(place + 1, again)

    assert wrong(changed(trace, tmp_path, corrupt)) == {"assignments"}


def test_a_message_never_acknowledged_is_found(trace, tmp_path):
    def corrupt(rows):
        acknowledged = [n for n, row in enumerate(rows) if row["event"] == "acknowledged"]
        rows[acknowledged[-1]]["last"] -= 1

    assert "acknowledged" in wrong(changed(trace, tmp_path, corrupt))


def test_the_account_names_what_is_missing_and_what_nobody_published(trace, tmp_path):
    """As many are acknowledged as were published, but they are not the same."""

    def corrupt(rows):
        found = [row for row in rows if row["kind"] == "tell" and row["event"] == "acknowledged"]
        lost = next(row for row in found if row["first"] == row["last"] > 0)
        lost["first"] = lost["last"] = 1_000_000

    path = changed(trace, tmp_path, corrupt)
    (columns,) = read_columns(path)
    streams = account_for(columns)
    assert sum(stream.acknowledged for stream in streams) == sum(stream.published for stream in streams)
    assert [(stream.missing, stream.unknown) for stream in streams if stream.missing or stream.unknown] == [(1, 1)]
    found = judged(path)["acknowledged"]
    assert (found.run.tolist(), found.seq.tolist()) == ([0], [-1])
    assert "1 missing, 1 that nobody published" in found.describe(0)


def a_grant(rows):
    """One that passes over something that is stored and acknowledged."""
    return next(row for row in rows if row["kind"] == "send" and row["event"] == "grant" and row["first"] > 0)


def test_a_grant_beyond_what_is_stored_is_found(trace, tmp_path):
    def corrupt(rows):
        a_grant(rows)["first"] = 2**62

    path = changed(trace, tmp_path, corrupt)
    verdicts = judged(path)
    assert {check for check, verdict in verdicts.items() if len(verdict.run)} == {"granted", "messages"}
    found = verdicts["granted"]
    assert f"from {2**62} on, and only " in found.describe(0)
    assert found.describe(0).endswith(" are stored")


def test_a_grant_of_all_that_is_stored_is_none_too_many(trace, tmp_path):
    def corrupt(rows, more):
        grant = a_grant(rows)
        told = [row for row in rows if row["event"] == "published" and row["key"] == grant["key"]]
        grant["first"] = max(row["last"] for row in told if row["run"] == grant["run"]) + 1 + more

    assert wrong(changed(trace, tmp_path, lambda rows: corrupt(rows, 0))) == {"messages"}
    assert wrong(changed(trace, tmp_path, lambda rows: corrupt(rows, 1))) == {"granted", "messages"}


def test_a_grant_beyond_what_is_acknowledged_is_found(trace, tmp_path):
    """The message before it is acknowledged by nobody; those after it are."""

    def corrupt(rows):
        grant = a_grant(rows)
        where = grant["run"], grant["key"]
        for row in [row for row in rows if row["event"] == "acknowledged" and (row["run"], row["key"]) == where]:
            if row["first"] < grant["first"] <= row["last"] + 1:
                row["last"] = grant["first"] - 2
            assert not row["first"] <= grant["first"] - 1 <= row["last"]

    path = changed(trace, tmp_path, corrupt)
    assert wrong(path) == {"granted", "acknowledged"}
    assert "is not acknowledged" in judged(path)["granted"].describe(0)


@pytest.mark.parametrize(
    ("acknowledged", "most"),
    [
        ([], 0),
        pytest.param([(1, 9)], 0, marks=pytest.mark.long),
        pytest.param([(0, 9)], 10, marks=pytest.mark.long),
        pytest.param([(0, 3), (5, 9)], 4, marks=pytest.mark.long),
        ([(6, 9), (0, 1), (3, 4)], 2),
        pytest.param([(0, 9), (2, 3)], 10, marks=pytest.mark.long),
        ([(0, 1), (2, 9), (4, 4), (0, 20)], 10),
    ],
)
def test_a_grant_passes_over_nothing_that_is_not_done(trace, tmp_path, acknowledged, most):
    """Of ten messages; what is acknowledged beyond them is not stored."""

    def corrupt(rows, first):
        grant = a_grant(rows)
        told = rows[find(rows, kind="tell", event="acknowledged")]
        mine = (grant["run"], grant["key"])
        rows[:] = [row for row in rows if (row["run"], row["key"]) != mine or row is grant]
        grant["first"] = first
        published = rows[find(rows, event="published")]
        place = {"run": grant["run"], "key": grant["key"]}
        rows[:0] = [published | place | {"first": 0, "last": 9}]
        rows[1:1] = [told | place | {"first": one, "last": last} for one, last in acknowledged]

    for first, finds in ((most, False), (most + 1, True)):
        path = changed(trace, tmp_path, lambda rows, first=first: corrupt(rows, first))
        assert bool(len(judged(path)["granted"].run)) is finds


def logs_of(path):
    """Run -> whose logs are missing."""
    results = JUDGES.judge(segment_of(path), {})
    return {one.run: one.log for _, one in results if isinstance(one, Absent)}


def findings_of(path):
    return {one.check for _, one in JUDGES.judge(segment_of(path), {}) if isinstance(one, Finding)}


def test_whose_log_is_missing_is_said_and_nothing_is_held_against_the_others(trace, tmp_path):
    def corrupt(rows):
        rows[:] = [row for row in rows if (row["run"], row["node"]) != (1, "consumer-2")]

    path = changed(trace, tmp_path, corrupt)
    assert logs_of(trace / "trace-storm.parquet") == {}
    assert logs_of(path) == {1: "consumer-2"}
    assert "acknowledged" in wrong(path)
    assert findings_of(path) == set()


def test_another_run_is_judged_all_the_same(trace, tmp_path):
    def corrupt(rows):
        rows[:] = [row for row in rows if (row["run"], row["node"]) != (0, "consumer-2")]
        here, there = ([row for row in rows if row["run"] == run] for run in range(2))
        a_grant(here)["first"] = 2**62
        grant = a_grant(there)
        grant["first"], grant["key"] = 2**62, there[find(there, event="published")]["key"]
        double = there[find(there, machine=f"{SS}/assignment", event="assign")]
        again = here[find(here, machine=f"{SS}/assignment", event="assign")]
        for one in (double, again):
            other = one["instance"].rpartition("#")[0] + "#999999"
            rows.insert(rows.index(one) + 1, one | {"instance": other})

    results = [one for _, one in JUDGES.judge(segment_of(changed(trace, tmp_path, corrupt)), {})]
    found = [one for one in results if isinstance(one, Finding)]
    assert {(one.check, one.run) for one in found} == {
        ("assignments", 0),
        ("assignments", 1),
        ("granted", 1),
        ("messages", 1),
    }
    (grant,) = (one for one in found if one.check == "granted")
    rows = pq.read_table(tmp_path / "trace-changed.parquet").to_pylist()
    assert rows[grant.seq]["key"] in grant.detail
    assert rows[grant.seq]["peer"] in grant.detail


@pytest.mark.parametrize("before", [2, 10**9])
def test_a_publisher_whose_log_is_missing_or_begins_late_is_named(trace, tmp_path, before):
    key = []

    def corrupt(rows):
        key.append(next(row["key"] for row in rows if row["event"] == "published" and row["last"] >= 2))
        mine = [row for row in rows if (row["run"], row["key"], row["event"]) == (0, key[0], "published")]
        for row in mine:
            row["first"] = max(row["first"], before)
        rows[:] = [row for row in rows if row not in mine or row["first"] <= row["last"]]

    path = changed(trace, tmp_path, corrupt)
    assert logs_of(path) == {0: f"who published {key[0]}" + (" before 2" if before == 2 else "")}
    assert findings_of(path) == set()


def test_a_duplicate_without_a_reason_is_found(trace, tmp_path):
    def corrupt(rows):
        place = find(rows, kind="tell", event="deliver")
        rows.insert(place + 1, dict(rows[place]))

    assert wrong(changed(trace, tmp_path, corrupt)) == {"duplicates", "order"}


def test_accounts_count_ranges(trace):
    (columns,) = read_columns(trace / "trace-storm.parquet")
    streams = account_for(columns)
    assert sum(stream.published for stream in streams) == 2 * MESSAGES
    assert sum(stream.acknowledged for stream in streams) == 2 * MESSAGES
    again = [stormy(number).run().tally["duplicates"] for number in range(2)]
    assert [sum(s.duplicates for s in streams if s.run == number) for number in range(2)] == again


def test_whole_runs_are_judged_some_at_a_time(trace, tmp_path, monkeypatch):
    """A file is cut where runs end, never inside one, and what is found is the same."""
    path = changed(trace, tmp_path, a_step_lost)
    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=1_000)
    (whole,) = read_columns(path)
    expected = {check: len(verdict.run) for check, verdict in judged(path).items()}
    monkeypatch.setattr(columns_module, "SEGMENT", 2_000)
    parts = list(read_columns(path))
    assert [part.runs() for part in parts] == [[one] for one in whole.runs()]
    found = Counter()
    for part in parts:
        segment = Segment(part, LOOKUP, lambda run: {})
        found.update({name: len(check.judge(segment).run) for name, _, check in JUDGES.checks})
    assert found["continuity"] == expected["continuity"] == 1
    assert found["rows"] == 0


def test_measures(trace):
    segment = segment_of(trace / "trace-storm.parquet")
    steps = segment.steps
    found = list_latencies(segment)
    assert {latency.measure for latency in found} == {"grant", "revoke"}
    assert all(latency.value_ns >= 0 for latency in found)
    used = list_used_rows(steps, LOOKUP)
    assert sum(one.count for one in used) == len(steps.index)
    assert {one.machine for one in used} == set(LOOKUP.machines) - {f"{SS}/private", f"{SS}/standby"}, (
        "the runs have no private subscription, and no member that cannot read"
    )
    sent = sum(one.count for one in row_counts(segment.columns) if one.kind == "send")
    assert sent == sum(stormy(number).run().sent for number in range(2))
    again = Counter(one.kind for one in count_resends(segment))
    assert again["assign"] == 2
    assert again["resend"] > 2


def test_a_row_number_that_no_table_can_have_is_no_row_that_was_taken(trace):
    steps = segment_of(trace / "trace-storm.parquet").steps
    there = sum(one.count for one in list_used_rows(steps, LOOKUP))
    for number in (1_023, 2**30, 2**31 - 1, -2):
        steps.row = steps.row.copy()
        steps.row[0] = number
        assert sum(one.count for one in list_used_rows(steps, LOOKUP)) == there - 1


def test_the_lookup_says_what_the_tables_say():
    for fsm in LOOKUP.family:
        for line in fsm.lines:
            for source in line.sources:
                dest = source if line.dest is None else line.dest
                codes = (
                    LOOKUP.machines[fsm.full_name],
                    LOOKUP.events[_name(line.event)],
                    LOOKUP.states[str(source.value)],
                    line.number,
                    LOOKUP.states[str(dest.value)],
                )
                legal = LOOKUP.legal(*(np.array([code]) for code in codes))
                assert bool(legal[0]) is (line.kind != "refuse")


def _name(event):
    from statemachines.kernel import name_of

    return name_of(event)


# -- what is no trace -----------------------------------------------------------------------------------------------


def rewrite(trace, tmp_path, name, change):
    for path in trace.glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(change(table) if path.name.startswith(name) else table, tmp_path / path.name)
    return tmp_path


def opened(directory, tmp_path):
    return TraceSet(directory, tmp_path / "out")


def test_a_trace_is_opened(trace, tmp_path):
    opened_set = opened(trace, tmp_path)
    opened_set.check_runs([0, 1])
    assert [protocol.name for protocol in opened_set.protocols] == [SS]
    assert opened_set.missing == []
    assert JUDGES.list_waived_runs(opened_set) == dict.fromkeys((name for name, _, _ in JUDGES.checks), frozenset())


def test_rows_out_of_order_are_named(trace, tmp_path):
    def swap(table):
        return pa.concat_tables([table.slice(0, 10), table.slice(11, 1), table.slice(10, 1), table.slice(12)])

    rewrite(trace, tmp_path, "trace", swap)
    with pytest.raises(ConfigurationError, match=r"is not sorted by \(run, seq\) at run 0 seq 10"):
        list(read_columns(tmp_path / "trace-storm.parquet"))


def test_missing_columns_are_named(trace, tmp_path):
    rewrite(trace, tmp_path, "trace", lambda table: table.drop_columns(["row", "grant"]))
    with pytest.raises(ConfigurationError, match="lacks the columns row, grant"):
        list(read_columns(tmp_path / "trace-storm.parquet"))
    rewrite(trace, tmp_path, "runs", lambda table: table.drop_columns(["seed"]))
    with pytest.raises(ConfigurationError, match="lacks the columns seed"):
        opened(tmp_path, tmp_path)


def test_another_fingerprint_is_named_with_ours(trace, tmp_path):
    def other(table):
        at = table.column_names.index("fingerprints")
        return table.set_column(at, "fingerprints", pa.array([f'{{"{SS}": "{"0" * 16}"}}'] * table.num_rows))

    rewrite(trace, tmp_path, "runs", other)
    with pytest.raises(ConfigurationError, match=f"0{{16}} of {SS}, these are {fingerprint(MACHINES)}"):
        opened(tmp_path, tmp_path)


def test_runs_that_do_not_fit_are_named(trace, tmp_path):
    opened_set = opened(trace, tmp_path)
    for found, says in (
        ([0, 1, 7], "run = 7: in the trace files, not"),
        ([0], "run = 1: in the table of runs, not"),
        ([0, 1, 1], "run = 1: in more than one trace file"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            opened_set.check_runs(found)


def test_what_is_no_parquet_is_named(trace, tmp_path):
    (tmp_path / "trace-x.parquet").write_text("hello")
    with pytest.raises(ConfigurationError, match="is not a Parquet file"):
        list(read_columns(tmp_path / "trace-x.parquet"))
    (tmp_path / "runs-x.parquet").write_text("hello")
    with pytest.raises(ConfigurationError, match="is not a Parquet file"):
        opened(tmp_path, tmp_path)


def test_nothing_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="is no directory"):
        opened(tmp_path / "none", tmp_path)
    with pytest.raises(ConfigurationError, match="holds no trace"):
        opened(tmp_path, tmp_path)


def test_the_columns_are_those_of_the_contract(trace):
    assert tuple(pq.read_schema(trace / "trace-storm.parquet").names) == COLUMNS
