"""Obligations: met by the shipped machines, and never by a leader that does not repeat itself; whatever judges them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from statemachines.kernel import Row
from statemachines.shared_subscriptions.assignment import ResendTimer
from statemachines.shared_subscriptions.leader import LEADER
from statemachines_spec.explorer.variant import substitute_rows
from statemachines_spec.liveness.fair_graph import TooLarge
from statemachines_spec.liveness.judge import graph_of, judge_obligation, live
from statemachines_spec.shared_subscriptions.group_setting import GroupSetting
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.systems import build, obligations_of, system


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(GroupSetting(revoke_timeouts=1), id="revokes"),
        pytest.param(GroupSetting(unsubscribes=1), id="leaving", marks=pytest.mark.long),
    ],
)
def test_the_shipped_machines_meet_their_obligations(setting):
    one = build("live", "", setting)
    results = live(one, obligations_of(one))
    assert all(result.is_held for result in results)
    assert sum(result.open_states > 0 for result in results) >= 4


def silent(row):
    """The same row, without what it does when it is time to say something again."""
    return Row(row.on, row.source, row.to, None, row.when, row.clause) if row.on is ResendTimer else row


def test_a_leader_that_does_not_repeat_a_grant_leaves_it_open_for_ever():
    one = system("revoke-timeout", "small")
    for actor in one.actors:
        if isinstance(actor, LeaderHost):
            actor.use_machine("leader", substitute_rows(LEADER, silent))
    results = {result.name: result for result in live(one, obligations_of(one))}
    assert not results["L2 leader-1"].is_held
    assert results["L1 consumer-1"].is_held


@pytest.mark.parametrize("engine", ["auto", "compiled"])
def test_a_graph_that_is_too_large_is_refused(engine):
    """The reachable states find room; what can happen without faults, with more room in the network, does not."""
    with pytest.raises(TooLarge, match="6000"):
        live(system("revoke-timeout", "small"), [], states_max=6_000, engine=engine, room=4)


@pytest.mark.parametrize("room", [1, 3])
def test_both_engines_make_the_same_graph_and_the_same_verdicts(room):
    """With room for three, entries are missing and arrays must grow."""
    one = system("revoke-timeout", "small")
    for actor in one.actors:
        if isinstance(actor, LeaderHost):
            actor.use_machine("leader", substitute_rows(LEADER, silent))
    plain, compiled = (graph_of(one, engine=engine, room=room) for engine in ("plain", "compiled"))
    assert (plain.name, plain.count, plain.size) == ("plain", compiled.count, compiled.size)
    assert compiled.name == "compiled"
    ours, others = ([judge_obligation(graph, each) for each in obligations_of(one)] for graph in (plain, compiled))
    for first, second in zip(ours, others, strict=True):
        assert (first.open_states, first.bounded, first.is_held) == (second.open_states, second.bounded, second.is_held)
        assert (first.way, first.then, first.round) == (second.way, second.then, second.round)
    assert not all(result.is_held for result in ours)


@pytest.mark.long
def test_without_numba_the_same_is_found():
    program = """if True:
        import sys
        sys.modules["numba"] = None
        from statemachines_spec.liveness.judge import graph_of, judge_obligation
        from statemachines_spec.shared_subscriptions.systems import obligations_of, system
        one = system("revoke-timeout", "small")
        graph = graph_of(one)
        print(graph.name, graph.count, *(judge_obligation(graph, each).open_states for each in obligations_of(one)))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    one = system("revoke-timeout", "small")
    graph = graph_of(one, engine="compiled")
    states = [judge_obligation(graph, each).open_states for each in obligations_of(one)]
    assert done.stdout.split() == ["plain", *(str(number) for number in (graph.count, *states))]
