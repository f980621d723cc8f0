"""`transitions` takes the steps of whole programs: simulated ones, and real ones over TCP."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from statemachines import catalogue
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
from statemachines.kernel import ConfigurationError, Fsm, Node
from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines_bench.dispatch import new_record
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World


@pytest.fixture
def steps():
    """The machines that `transitions` has stepped."""
    stepped, reference = set(), Fsm.reference_step

    def note(fsm, *given):
        stepped.add(fsm.name)
        return reference(fsm, *given)

    with patch.object(Fsm, "reference_step", note):
        yield stepped
    catalogue.use_engine("compiled")


@pytest.mark.parametrize(
    ("scenario", "machines"),
    [
        ("quiet", {"borrower", "stream", "leader", "assignment", "session"}),
        ("calm_sessions", {"writer", "writer_flow", "session_life"}),
        ("one_gap", {"subscriber", "source", "publisher"}),
        ("fair", {"publisher_window", "subscriber_window"}),
        ("undisturbed", {"reader", "writer"}),
        ("calm_clients", {"mqtt_connection", "writer", "session_host"}),
    ],
)
def test_a_simulated_run_by_transitions_is_the_same(scenario, machines, steps):
    rows = []
    for engine in ("compiled", "transitions"):
        catalogue.use_engine(engine)
        world = World(find_scenario(scenario), 1)
        assert world.run().is_held
        rows.append(world.rows)
        assert steps >= (machines if engine == "transitions" else set())
    assert rows[0] == rows[1]


def test_a_group_over_tcp_is_stepped_by_transitions(steps, tmp_path):
    async def consume(store):
        async with LeaderNode(listen=("127.0.0.1", 0), store=store) as leader, Publisher(store) as publisher:
            await publisher.publish("news", [b"1", b"2"])
            where = "{}:{}".format(*leader.address)
            async with SharedSubscription("$shared/g/#", leader=where, store=store, start="beginning") as messages:
                return [(await anext(aiter(messages))).payload for _ in range(2)]

    catalogue.use_engine("transitions")
    assert asyncio.run(asyncio.wait_for(consume(tmp_path / "messages.db"), 60)) == [b"1", b"2"]
    assert steps >= {"borrower", "stream", "leader", "assignment", "session"}


def test_a_node_is_told_its_engine_and_no_other_name_is_taken(steps):
    with pytest.raises(ConfigurationError, match="engine = 'hand': must be one of compiled, transitions"):
        Node(BORROWER, new_record(), name="b", now_ns=0, engine="hand")
    node = Node(BORROWER, new_record(), name="b", now_ns=0, engine="transitions")
    node.fire(10**12)
    assert steps == {"borrower"}
