"""Traces that are damaged in one place, and what the judges say of them."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from statemachines import cli, registry
from statemachines_reports.damage.damage_list import KINDS, LEFT_OUT
from statemachines_reports.damage.damage_matrix import BY_NAME
from statemachines_reports.damage.log_damage import ACTS
from statemachines_reports.protocol import reports_of
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario

PROTOCOLS = ("cursor_recovery", "missed_samples", "persistent_sessions", "sequence_windows", "shared_subscriptions")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage") / "trace"
    campaign(find_scenario("shared_subscriptions/quiet"), range(2), out=folder, processes=1)
    return folder


def test_every_kind_of_damage_in_the_list_can_be_done():
    assert KINDS.keys() == BY_NAME.keys() | ACTS.keys()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_kind_that_a_protocol_leaves_out_has_a_reason(protocol):
    left_out = LEFT_OUT | reports_of(registry.protocol(protocol)).roles.left_out
    assert left_out.keys() <= KINDS.keys()
    assert all(len(reason.split()) >= 5 for reason in left_out.values())


def test_the_same_seed_damages_the_same_place_and_nothing_else(trace, tmp_path, capsys):
    for folder in ("a", "b"):
        arguments = ["damage", str(trace), "--kind", "send-removed", "--seed", "3", "--out", str(tmp_path / folder)]
        assert cli.run(arguments) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    whole = pq.read_table(next(trace.glob("trace-*.parquet"))).num_rows
    damaged = [pq.read_table(tmp_path / folder / "trace-damaged.parquet") for folder in ("a", "b")]
    assert [table.num_rows for table in damaged] == [whole - 1] * 2
    assert damaged[0].equals(damaged[1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one of --kind NAME and --all is needed"),
        (("--kind", "no-such-kind"), "is no kind of damage"),
        (("--kind", "send-removed"), "name a folder for the damaged trace"),
        (("--kind", "crash-removed", "--out", "OUT"), "finds nothing to hit in run 0"),
        (("--kind", "log-torn", "--out", "OUT"), "holds none"),
    ],
)
def test_a_damage_that_cannot_be_done_is_refused_in_one_line(trace, tmp_path, capsys, arguments, said):
    given = [str(tmp_path / "out") if one == "OUT" else one for one in arguments]
    assert cli.run(["damage", str(trace), *given]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1
