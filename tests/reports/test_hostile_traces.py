"""Traces that say impossible things in many rows: a verdict comes of each, and never a traceback."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines import cli
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario

SCENARIOS = {
    "cursor_recovery": "deaths",
    "missed_samples": "lost_replies",
    "mqtt_connections": "mixed_clients",
    "persistent_sessions": "takeovers",
    "sequence_windows": "many_publishers",
    "shared_subscriptions": "kills",
}


@pytest.fixture(scope="module", params=SCENARIOS)
def trace(request, tmp_path_factory):
    """The folder of a run of one second."""
    folder = tmp_path_factory.mktemp(request.param)
    scenario = find_scenario(f"{request.param}/{SCENARIOS[request.param]}")
    campaign(replace(scenario, phases=replace(scenario.phases, safety_s=1.0)), range(1), out=folder, processes=1)
    return folder


def exchange(one, other):
    def change(rows):
        for row in rows:
            row[one], row[other] = row[other], row[one]

    return change


def forget(column):
    def change(rows):
        for row in rows[len(rows) // 2 :][:5]:
            row[column] = None

    return change


def overflow(rows):
    for row in rows[7::50]:
        row.update(first=2**63 - 1, last=-(2**63))


def say_nothing_of_names(rows):
    for row in rows[7::50]:
        row.update(instance="~~//::##", key="//~#", node="~")
    for row in rows[9::50]:
        row.update(key="data/x/" + "9" * 30)


CHANGES = {
    "overflow": overflow,
    "names": say_nothing_of_names,
    "no-instance": forget("instance"),
    "node-instance": exchange("node", "instance"),
    "key-peer": exchange("key", "peer"),
    "first-last": exchange("first", "last"),
}


@pytest.mark.parametrize(
    "change", mark_long(CHANGES, "names", "no-instance", "node-instance", "key-peer", "first-last")
)
def test_impossible_rows_are_judged_in_words(trace, tmp_path, capsys, change):
    folder = tmp_path / "trace"
    folder.mkdir()
    changes_nothing = True
    for path in trace.iterdir():
        table = pq.read_table(path)
        if path.name.startswith("trace-"):
            rows = table.to_pylist()
            CHANGES[change](rows)
            changes_nothing = rows == table.to_pylist()
            table = pa.Table.from_pylist(rows, schema=table.schema)
        pq.write_table(table, folder / path.name)
    code = cli.run(["analyze", str(folder), "--out", str(tmp_path / "out"), "--engine", "local"])
    assert code == (0 if changes_nothing else 1)
    assert "mistake of gapless" not in capsys.readouterr().err
