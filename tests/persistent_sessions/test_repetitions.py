"""An owner that stood still takes or sends what a later owner has committed or sent: that is no repetition.  A message
that is taken, committed or sent a second time otherwise is one."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from statemachines_reports.columns import NEEDED, Columns
from statemachines_reports.persistent_sessions.histories import Histories
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import Phases, find_scenario


def wrong_of(columns):
    """Check and words of all that is wrong."""
    return [(one.check, one.detail) for one in Histories(columns).findings.wrong]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The rows of a run in which nodes stood still while others took their sessions over."""
    folder = tmp_path_factory.mktemp("stopped")
    scenario = replace(find_scenario("persistent_sessions/stopped_nodes"), phases=Phases(5.0, 120.0))
    (outcome,) = campaign(scenario, range(14, 15), out=folder, processes=1)
    assert outcome.is_held
    (path,) = folder.glob("trace-*.parquet")
    return pq.read_table(path, columns=list(NEEDED))


def repeated(table, place, behind):
    """The rows, with the one at `place` once more behind another."""
    return Columns(table.take([*range(behind + 1), place, *range(behind + 1, len(table))]))


def test_a_clean_run_with_stopped_nodes_has_no_repetition(stopped):
    """Superseded owners take in it what later owners have committed."""
    assert wrong_of(Columns(stopped)) == []
