"""Simulated sessions: every scenario holds, runs repeat, and faults do what they say."""

from __future__ import annotations

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, node_of
from statemachines_sim.campaign import campaign
from statemachines_sim.fault import Fault
from statemachines_sim.network import drop
from statemachines_sim.persistent_sessions import SIM
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.scenario import (
    Net,
    Phases,
    Scenario,
    check_scenario,
    find_scenario,
    from_plain,
    list_shipped_with,
)
from statemachines_sim.units import MS, S
from statemachines_sim.world import World

NAMES = sorted(list_shipped_with(SIM.name))
SHORT = Scenario(
    "short", SIM.name, SessionSection(subscribers=2, publishers=1), network=Net(fifo=True), phases=Phases(8.0, 60.0)
)
SAFETY_S = {"resumed_at_once": 4.0, "small_buffers": 5.0}
"""What has a heavy load is shorter here than the others."""


def short(schedule=(), seed=1, **keys):
    scenario = replace(SHORT, own=replace(SHORT.own, **keys))
    return World(scenario, seed, schedule=schedule)


def count(world, kind, name=""):
    return sum(row[4] == kind and row[5] == name for row in world.rows)


@pytest.mark.parametrize("safety_s", mark_long((3.0, 6.0), "6.0"))
@pytest.mark.parametrize("name", mark_long(NAMES, "resumed_at_once", "moving_publishers"))
def test_every_scenario_of_sessions_holds(name, safety_s):
    scenario = find_scenario(f"{SIM.name}/{name}")
    safety_s = min(safety_s, SAFETY_S.get(name, safety_s))
    joins = tuple(at for at in scenario.own.join_nodes_s if at < safety_s)
    own = replace(scenario.own, join_nodes_s=joins)
    scenario = replace(scenario, own=own, phases=replace(scenario.phases, safety_s=safety_s))
    (outcome,) = campaign(scenario, [NAMES.index(name)], processes=1)
    assert outcome.is_held, outcome
    assert outcome.tally["delivered"] > 0
    assert not outcome.noted


def test_PS_240_what_expires_while_its_clients_lag_is_deleted_and_nothing_counts_as_lost():
    world = short(publishers=2, qos=(1,), expires=0.7, message_expiry_ms=(50, 500), receive_maximum=(1,), queue=1,
                  ack_ms=(300, 500), message_grace_ms=50, round_ms=100)  # fmt: skip
    outcome = world.run()
    assert outcome.is_held, outcome
    tally = outcome.tally
    assert tally["expired"] >= tally["dropped"] > 10
    assert tally["lost"] == 0
    assert tally["delivered"] > 10


def test_the_same_seed_is_the_same_run_of_sessions():
    scenario = replace(find_scenario(f"{SIM.name}/sessions_storm"), phases=Phases(4.0, 90.0))
    scenario = replace(scenario, own=replace(scenario.own, join_nodes_s=()))
    runs = [World(scenario, 4, data=True) for _ in range(2)]
    assert runs[0].run() == runs[1].run()
    assert runs[0].rows == runs[1].rows
    assert World(scenario, 5).run() != runs[0].run()


def test_undisturbed_every_message_comes_once_and_nothing_is_left():
    world = short(stay_s=(0, 0), lag_ms=(0, 0))
    outcome = world.run()
    assert outcome.is_held, outcome
    tally = outcome.tally
    assert tally["answered"] == tally["published"] > 20
    assert tally["stored"] == tally["delivered"] > 20
    assert tally["again"] == tally["lost"] == tally["fenced"] == tally["handed_again"] == 0
    assert tally["opened"] == tally["connected"] == 2


def test_a_session_goes_on_at_another_node_when_its_own_dies():
    world = short(stay_s=(0, 0), nodes=2)
    world.run(until_ns=4 * S)
    before = {name: client.server for name, client in world.processes.items() if name.startswith("subscriber")}
    server = before["subscriber-1"]
    world.crash(node_of(server))
    outcome = world.run()
    assert outcome.is_held, outcome
    moved = [name for name, one in before.items() if one == server]
    assert outcome.tally["resumed"] >= len(moved)
    assert all(world.processes[name].server != server for name in moved)


def test_a_node_that_stands_still_is_taken_over_for_dead_and_ends_its_sessions_when_it_goes_on():
    world = short(stay_s=(0, 0), nodes=2)
    world.run(until_ns=3 * S)
    client = world.processes["subscriber-1"]
    node = world.processes[node_of(client.server)]
    (owner,) = [one for one, found in node.sessions.owners.items() if found.client == "subscriber-1"]
    world.pause(node.node)
    world.run(until_ns=7 * S)
    assert client.welcome
    assert client.server != node.life
    assert owner in node.sessions.owners
    outcome = world.run()
    assert outcome.is_held, outcome
    assert owner not in node.sessions.owners


def test_what_is_lost_on_a_raw_link_is_found_in_the_database():
    world = short(stay_s=(0, 0), nodes=2, raw=True)
    rule = world.network.rule(drop("live", nth=3))
    outcome = world.run()
    assert rule.hit == 1
    assert outcome.is_held, outcome
    assert outcome.tally["stored"] == outcome.tally["delivered"]


def test_what_is_lost_on_a_link_breaks_it_and_its_end_hears_of_that():
    world = short(stay_s=(0, 0), nodes=2, look_ms=600_000)  # so that nobody finds it in the database
    rule = world.network.rule(drop("live", nth=3))
    outcome = world.run()
    assert rule.hit == 1
    assert outcome.is_held, outcome
    assert count(world, "step", "link_lost") > 0
    assert not any(wire[0].startswith("node-") for wire in world.devices["wires"].broken)


def test_replicas_are_behind_and_never_by_more_than_they_may():
    world = short(stay_s=(1, 2), lag_ms=(1_000, 1_000), replicas=1)
    statements = world.devices["database"].service
    seen, (replica,) = [], statements._replicas
    read = replica.read

    def looked(request, now_ns):
        found = read(request, now_ns)
        seen.append(now_ns - replica._copy.last_commit_ns())
        return found

    replica.read = looked
    assert world.run().is_held
    assert max(seen) > 500 * MS
    assert max(seen) <= 1_000 * MS + S, "a second may pass in which nobody commits"


def test_a_liar_lies_and_nothing_comes_of_it():
    liar = [Fault("liar", S, 7 * S, f"node-{number}") for number in (1, 2)]
    moves = {"stay_s": (1, 2), "away_ms": (1, 100), "leave": 0.0, "clean": 0.0, "resubscribe": 0.0}
    world = short(liar, nodes=2, **moves)
    told = []
    world.watch.says = lambda party, message: told.append(message)
    network = world.network
    sent, send = [], network.send
    network.send = lambda node, party, to, message, now_ns: (
        sent.append(message),
        send(node, party, to, message, now_ns),
    )
    assert world.run().is_held
    lies = [one for one in sent if type(one).__name__ in ("BeginTakeover", "MarkerWanted") and one not in told]
    assert lies


@pytest.mark.long
def test_a_clock_of_the_database_that_is_set_back_keeps_nobody_from_going_on():
    """Its time stands still until the clock has caught up; a node that dies then seems to live, and its sessions go on
    elsewhere all the same."""
    set_back = [Fault("set_back", 3 * S, 0, "database", amount=30 * S), Fault("crash", 4 * S, 20 * S, "node-1")]
    scenario = replace(SHORT, own=replace(SHORT.own, stay_s=(0, 0), nodes=2), phases=Phases(25.0, 60.0))
    world = World(scenario, 1, schedule=set_back)
    times, commits, statements = [], [], world.devices["database"].service
    answer = statements._answer

    def seen(request, now_ns):
        found = answer(request, now_ns)
        times.append(now_ns)
        commits.append(statements.database.last_commit_ns())
        return found

    statements._answer = seen
    world.run(until_ns=20 * S)
    assert min(times) < 0 < max(times), "it was set back behind its beginning"
    assert commits == sorted(commits), "its own time does not go back"
    assert commits[-1] < 4 * S
    assert all(client.welcome for name, client in world.processes.items() if name.startswith("subscriber"))
    assert world.run().is_held
    assert world.watch.tally()["stored"] == world.watch.tally()["delivered"] > 20


def test_a_client_that_stops_for_long_is_given_up_and_goes_on():
    world = short([Fault("pause", S, 20 * S, "subscriber-1")], stay_s=(0, 0))
    world = World(replace(world.scenario, phases=Phases(30.0, 60.0)), 1, schedule=world.schedule)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert outcome.tally["connected"] == 3
    assert outcome.tally["resumed"] == 1


def test_live_messages_are_sent_between_nodes():
    world = short(stay_s=(0, 0))
    assert world.run().is_held
    assert count(world, "send", "live") > 10


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"receive_maximum": [0]}, "receive_maximum"),
        ({"qos": []}, "qos"),
        ({"filters": 9}, "filters"),
        ({"publish_ms": [0, 10]}, "publish_ms"),
        ({"stay_s": [0, 10]}, "stay_s"),
        ({"marker_ms": 9_000}, "marker_ms"),
        ({"join_nodes_s": [99.0]}, "join_nodes_s"),
        ({"leave": 2}, "leave"),
    ],
)
def test_a_section_that_cannot_be_is_refused(section, said):
    plain = {"name": "x", "protocol": SIM.name, "network": {"fifo": True}, SIM.name: section}
    with pytest.raises(ConfigurationError, match=said):
        check_scenario(from_plain(plain))


def test_connections_keep_order_or_there_are_none():
    with pytest.raises(ConfigurationError, match=r"network\.fifo"):
        check_scenario(from_plain({"name": "x", "protocol": SIM.name}))


def test_what_a_connection_brings_twice_while_a_process_stands_still_is_heard_once():
    schedule = [Fault("duplicate", 2 * S, 2 * S, rate=1.0), Fault("pause", 2 * S, S, "node-1")]
    world = short(schedule, stay_s=(0, 0), nodes=1)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert count(world, "duplicate", "publish_wanted") > 3
    assert outcome.tally["stored"] == outcome.tally["delivered"] > 20
