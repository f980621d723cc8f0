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
from statemachines_reports.judge import Judges, counts, used_rows
from statemachines_reports.shared_subscriptions.account import account_for
from statemachines_reports.shared_subscriptions.latencies import latencies
from statemachines_reports.shared_subscriptions.resends import count_resends
from statemachines_reports.trace_set import TraceSet
from statemachines_sim.campaign import run_row
from statemachines_sim.scenario import named
from statemachines_sim.world import World

SS = "shared_subscriptions"
MACHINES = catalogue.machines(SS)
JUDGES = Judges([registry.protocol(SS)])
LOOKUP = JUDGES.lookup
MESSAGES = 500


def stormy(number: int) -> World:
    """A run of `storm` with a few messages: as many faults, and a fifth of the rows."""
    scenario = named("storm")
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
    return {name: check.judge(segment_of(path)) for name, _, check in JUDGES.checks}


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
    assert all(verdict.checked > 0 for verdict in verdicts.values())
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


def test_a_duplicate_without_a_reason_is_found(trace, tmp_path):
    def corrupt(rows):
        place = find(rows, kind="tell", event="deliver")
        rows.insert(place + 1, dict(rows[place]))

    assert wrong(changed(trace, tmp_path, corrupt)) == {"duplicates"}


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
    found = latencies(segment)
    assert {latency.measure for latency in found} == {"grant", "revoke"}
    assert all(latency.value_ns >= 0 for latency in found)
    used = used_rows(steps, LOOKUP)
    assert sum(one.count for one in used) == len(steps.index)
    assert {one.machine for one in used} == set(LOOKUP.machines) - {f"{SS}/private"}, (
        "the runs have no private subscription"
    )
    sent = sum(one.count for one in counts(segment.columns) if one.kind == "send")
    assert sent == sum(stormy(number).run().sent for number in range(2))
    again = Counter(one.kind for one in count_resends(segment))
    assert again["assign"] == 2
    assert again["resend"] > 2


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
    assert opened_set.waived(JUDGES) == dict.fromkeys((name for name, _, _ in JUDGES.checks), frozenset())


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
