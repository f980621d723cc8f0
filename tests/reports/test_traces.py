"""Level replay: the shipped machines step again through a trace with data, and what is wrong with it is found.

Several traces: only those that are compared must be of the same protocols; a demo judges all of its own together.
"""

import re
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines.trace import COLUMNS
from statemachines.trace.parquet import SCHEMA, TEXTS, TraceWriter
from statemachines_reports.columns import Columns, Segment, read_run
from statemachines_reports.damage.damage_kind import DamagedRun
from statemachines_reports.damage.damage_matrix import KINDS
from statemachines_reports.judge import Judges
from statemachines_reports.pipeline import analyze_all
from statemachines_sim.campaign import campaign, run_row
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

SCENARIOS = (
    "cursor_recovery/odd_clocks",
    "missed_samples/lost_replies",
    "persistent_sessions/lying_nodes",
    "sequence_windows/any_weather",
    "shared_subscriptions/election",
    "shared_subscriptions/clocks",
    "shared_subscriptions/lies",
)


def write_trace(scenario, folder, seed=3, data=True):
    """A short run, in a trace."""
    found = find_scenario(scenario)
    world = World(replace(found, phases=replace(found.phases, safety_s=1.5)), seed, data=data)
    outcome = world.run()
    with TraceWriter(folder, "short") as writer:
        writer.add(run_row(world.scenario, outcome, 0), world.rows)
    return read_run(folder / "trace-short.parquet", COLUMNS, 0, TEXTS).cast(SCHEMA).combine_chunks()


def replay(table, protocol):
    judges = Judges([registry.protocol(protocol)])
    check = next(check for name, _, check in judges.checks if name == "replay")
    return check.judge(Segment(Columns(table), judges.lookup, lambda run: {}))


def describe(verdict):
    return [verdict.describe(place) for place in range(len(verdict.run))]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_run_with_data_replays_step_by_step(tmp_path, scenario):
    table = write_trace(scenario, tmp_path)
    verdict = replay(table, scenario.partition("/")[0])
    assert describe(verdict) == []
    rows = table.select(["kind", "event"]).to_pylist()
    steps, first = (
        sum(row["kind"] in ("step", "timer") for row in rows),
        rows.count({"kind": "record", "event": "first"}),
    )
    assert verdict.checked > 300
    assert steps - 2 * first <= verdict.checked <= steps - first, (
        "a first step, and its children, come before the record"
    )


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return write_trace("shared_subscriptions/kills", tmp_path_factory.mktemp("replay"))


@pytest.fixture(scope="module")
def run(trace):
    return DamagedRun(trace, Judges([registry.protocol("shared_subscriptions")]))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_another_field_of_an_event_or_effect_is_found(run, kind):
    chance, rows = Random(1), kind.find(run)
    for row in chance.sample(rows.tolist(), 5):
        damaged = run.apply(kind.act(run, row, chance))
        assert len(replay(damaged, "shared_subscriptions").run) >= 1, run.cell("event", row)


def list_rows(table, **cells):
    rows = table.drop_columns(["data"]).to_pylist()
    return [place for place, row in enumerate(rows) if all(row[name] == value for name, value in cells.items())]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{}", "step grant .* is refused: ValidationError"),
        ("[" * 100_000, "step grant .* is refused: "),
        ("no JSON", "step grant .* is refused: DecodeError"),
        ('{"@now_ns":"x"}', "step grant .* is refused: ValidationError"),
    ],
)
def test_data_that_is_no_event_is_wrong_in_its_row(run, data, said):
    row = list_rows(run.table, kind="step", event="grant", machine="shared_subscriptions/borrower")[2]
    verdict = replay(run.apply(run.change(row, data=data)), "shared_subscriptions")
    assert verdict.seq.tolist() == [row]
    assert re.match(said, describe(verdict)[0])


@pytest.mark.parametrize("event", ["first", "last"])
def test_a_record_that_is_another_is_found(run, event):
    row = list_rows(run.table, kind="record", event=event, machine="shared_subscriptions/leader")[0]
    fields = msgspec.json.decode(run.table["data"][row].as_py())
    fields["id"] += "x"
    verdict = replay(run.apply(run.change(row, data=msgspec.json.encode(fields).decode())), "shared_subscriptions")
    assert len(verdict.run) >= 1


def test_rows_that_are_missing_are_found(run):
    first = list_rows(run.table, kind="record", event="first", machine="shared_subscriptions/leader")[0]
    child = list_rows(run.table, kind="step", machine="shared_subscriptions/assignment")[3]
    send = list_rows(run.table, kind="send", event="grant")[3]
    for row, said in [
        (first, "no row has the record"),
        (child, "is another than that of the replay|is in no row"),
        (send, "comes where send grant must|is in no row"),
    ]:
        found = describe(replay(run.apply(run.remove(row)), "shared_subscriptions"))
        assert any(word in found[0] for word in said.split("|")), found[0]


def test_what_a_machine_with_a_mistake_did_is_not_what_the_shipped_one_does(tmp_path):
    with plant_bug("sequence_windows/number-left-out"):
        table = write_trace("sequence_windows/crowded", tmp_path, seed=0)
    assert "stamped" in " ".join(describe(replay(table, "sequence_windows")))


@pytest.mark.long
def test_traces_of_two_protocols_are_judged_together_and_not_compared(tmp_path):
    folders = []
    for name in ("shared_subscriptions/quiet", "cursor_recovery/undisturbed"):
        campaign(find_scenario(name), range(1), out=tmp_path / name / "trace", processes=1)
        folders.append((tmp_path / name / "trace", tmp_path / name / "out"))
    groups, queues = analyze_all(folders, spark=False, are_compared=False)
    assert (groups.is_held, queues.is_held) == (True, True)
    with pytest.raises(ConfigurationError, match="traces of the same protocols are compared"):
        analyze_all(folders, spark=False)
