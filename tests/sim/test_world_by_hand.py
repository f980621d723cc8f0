"""A world put together by hand: nodes, devices, rules of the network, pauses and cuts, without any scenario.

Forged messages: of any type, one field says something else that its type allows; the same chance makes the same.
"""

from __future__ import annotations

import inspect
from random import Random
from typing import Annotated

import msgspec
import pytest
from counting import CLIENT, SERVER, SIM, Add, ClientRecord, Count, Counted, PutFailed, Section, ServerRecord, Table

from statemachines.kernel import ConfigurationError, Message
from statemachines.shared_subscriptions.message import BorrowerMessage, LeaderMessage, Number, Ping, Report
from statemachines_sim import (
    MS,
    Fault,
    Net,
    S,
    Scenario,
    World,
    delay,
    drop,
    duplicate,
    machine_role,
    query_fabric,
    remote_store,
    shared_memory,
)
from statemachines_sim.cluster import Fixture, Role
from statemachines_sim.forged_message import Forger
from statemachines_sim.protocol import NOTHING

STEADY = Net(delay_ms=(5, 5), tail=0.0)


def by_hand(device=None, seed=1, net=STEADY):
    """A server, a client and a table."""
    world = World(Scenario("by_hand", NOTHING, network=net), seed)
    world.add_device(device or remote_store(Table(), failed=lambda request: PutFailed()))
    server = world.add("server-1", machine_role("server", SERVER, ServerRecord))
    client = world.add("client-1", machine_role("client", CLIENT, ClientRecord))
    return world, server, client


def sent(world, event):
    return [row for row in world.rows if row[4] == "send" and row[5] == event]


def test_a_machine_becomes_a_process_without_glue():
    world, server, client = by_hand()
    client.feed(Count())
    world.run(until_ns=S)
    assert client.heard == [Counted(1, 1)]
    assert client.record.n == 1
    assert world.devices["table"].state == {"client-1~1": 1}
    assert {row[2] for row in world.rows} == {"", "counting/client", "counting/server"}
    assert server.record == ServerRecord("server-1~1")


def test_a_service_that_is_not_in_the_world_is_refused():
    world, _, client = by_hand(remote_store(Chairs(), failed=lambda request: PutFailed()))
    client.feed(Count())
    with pytest.raises(ConfigurationError) as refused:
        world.run(until_ns=S)
    assert str(refused.value) == (
        "service = 'table': server-1~1 asks it, and there is no such device (chairs); add a `Fixture` of that name"
    )


class Chairs(Table):
    name = "chairs"


def test_an_application_drives_its_machine():
    def once_more(process, event):
        if event.n < 4:
            process.after(10 * MS, lambda: process.feed(Count()))

    world, _, _ = by_hand()
    role = machine_role("client", CLIENT, ClientRecord, start=Count(), application=once_more)
    client = world.add("client-2", role)
    world.run(until_ns=S)
    assert [event.n for event in client.heard] == [1, 2, 3, 4]


@pytest.mark.parametrize(("nth", "adds"), [(1, 2), (2, 1), (0, 3)])
def test_a_rule_drops_the_nth_message_or_all_of_them(nth, adds):
    world, _, client = by_hand()
    rule = world.network.rule(drop("add", nth=nth))
    client.feed(Count())
    world.run(until_ns=1_400 * MS)
    assert len(sent(world, "add")) == adds
    assert rule.hit == (nth == 1) + 3 * (nth == 0)
    assert world.network.dropped == rule.hit


def test_a_rule_counts_only_the_messages_that_it_is_about():
    world, _, client = by_hand()
    other = world.add("client-2", machine_role("client", CLIENT, ClientRecord))
    rule = world.network.rule(drop("added", nth=1, to="client-2"))
    client.feed(Count())
    other.feed(Count())
    world.run(until_ns=400 * MS)
    assert (rule.seen, rule.hit) == (1, 1)
    assert (len(client.heard), len(other.heard)) == (1, 0)


def test_one_message_is_delayed_and_one_doubled():
    world, _, client = by_hand()
    world.network.rule(delay("added", by_ns=100 * MS, nth=0))
    copies = world.network.rule(duplicate("add", late_ns=30 * MS))
    client.feed(Count())
    world.run(until_ns=80 * MS)
    assert not client.heard
    world.run(until_ns=200 * MS)
    assert client.heard == [Counted(1, 1)]
    assert copies.hit == len([row for row in world.rows if row[4] == "duplicate"]) == 1
    assert world.devices["table"].state == {"client-1~1": 1}


def test_a_process_that_stands_still_hears_everything_when_it_goes_on():
    world, server, client = by_hand()
    world.pause("server-1")
    client.feed(Count())
    world.run(until_ns=1_200 * MS)
    assert (client.heard, server.is_paused) == ([], True)
    world.resume("server-1")
    world.run(until_ns=1_300 * MS)
    assert client.heard == [Counted(1, 1)]
    assert [row[5] for row in world.rows if row[4] == "fault"] == ["join", "join", "pause", "resume"]


def test_what_is_said_to_one_that_stands_still_waits():
    world, _, client = by_hand()
    world.pause("client-1")
    client.feed(Count())
    world.run(until_ns=S)
    assert client.record.n == 0
    world.resume("client-1")
    assert client.record.n == 1


def test_a_crash_takes_the_memory_and_the_next_life_has_another_id():
    world, _, client = by_hand()
    client.feed(Count())
    world.run(until_ns=6 * MS)
    world.crash("client-1")
    world.run(until_ns=S)
    assert client.heard == []
    world.restart("client-1")
    again = world.processes["client-1"]
    assert (again.life, again.record) == ("client-1~2", ClientRecord("client-1~2"))


def test_a_remote_store_answers_whoever_has_died_and_shared_memory_does_not():
    """The server dies right after it has asked."""
    for device, kept in ((remote_store(Table()), {"client-1~1": 1}), (shared_memory(Table()), {})):
        world, _, client = by_hand(device)
        client.feed(Count())
        while not any(row[4] == "ask" for row in world.rows):
            world.env.step()
        world.crash("server-1")
        world.run(until_ns=400 * MS)
        assert world.devices["table"].state == kept


def test_a_query_has_many_answers_and_an_end_that_nobody_holds_up():
    asked = []

    def respond(process, request):
        return [Counted(number, process.life) for number in (1, 2)]

    device = query_fabric(
        "caches",
        asked=lambda request: ("cache-1", "cache-2", "cache-3"),
        answers=respond,
        end=lambda request: "end",
        timeout_ns=200 * MS,
    )
    world, _, client = by_hand(device)
    for number in (1, 2, 3):
        world.add(f"cache-{number}", machine_role("cache", SERVER, ServerRecord))
    world.devices["caches"].ask(client, client.life, "which", asked.append)
    world.run(until_ns=100 * MS)
    assert (len(asked), asked[-1]) == (7, "end")
    assert {one.total for one in asked[:-1]} == {f"cache-{number}~1" for number in (1, 2, 3)}
    asked.clear()
    world.crash("cache-2")
    world.devices["caches"].ask(client, client.life, "which", asked.append)
    world.run(until_ns=250 * MS)
    assert len(asked) == 4
    world.run(until_ns=400 * MS)
    assert (len(asked), asked[-1]) == (5, "end")


def test_no_answer_comes_after_the_end():
    asked = []
    device = query_fabric(
        "caches",
        asked=lambda request: ("server-1",),
        answers=lambda process, request: ["late"],
        end=lambda request: "end",
        timeout_ns=8 * MS,
    )
    world, _, client = by_hand(device)
    world.devices["caches"].ask(client, client.life, "which", asked.append)
    world.run(until_ns=S)
    assert asked == ["end"], "there and back takes 10 ms"


def test_faults_are_drawn_for_those_who_are_there_when_they_begin():
    role = machine_role("client", CLIENT, ClientRecord, count=1, joins_ns=(S // 2, 5 * S))
    assert role.nodes == ("client-1", "client-2", "client-3")
    assert role.exposed_nodes == ("client-1", "client-2")


def overtaken(fifo):
    """How many messages between two nodes arrive before one that was sent earlier."""
    world, _, client = by_hand(net=Net(delay_ms=(1, 90), tail=0.2, tail_ms=300, fifo=fifo))
    for number in range(200):
        world.after(number * MS, world.network.send, "client-1", client.life, "server-1", Add(client.life, number), 0)
    world.run(until_ns=2 * S)
    arrived = [row[10] for row in world.rows if row[4] == "deliver" and row[1] == "server-1"]
    assert len(arrived) == 200
    return sum(one < max(arrived[:at]) for at, one in enumerate(arrived) if at)


def test_paths_are_first_in_first_out_if_the_network_says_so():
    assert overtaken(fifo=False) > 50
    assert overtaken(fifo=True) == 0


def test_faults_of_a_schedule_hit_a_world_by_hand():
    world = World(Scenario("by_hand", NOTHING), 1, schedule=(Fault("crash", S, 2 * S, "client-1"),))
    world.add("client-1", machine_role("client", CLIENT, ClientRecord))
    outcome = world.run(until_ns=4 * S)
    assert (outcome.faults, world.processes["client-1"].life) == ({"crash": 1}, "client-1~2")


def test_a_service_that_nobody_gave_is_named():
    world = World()
    world.add("server-1", machine_role("server", SERVER, ServerRecord))
    client = world.add("client-1", machine_role("client", CLIENT, ClientRecord))
    client.feed(Count())
    with pytest.raises(ConfigurationError, match="service = 'table': server-1~1 asks it"):
        world.run(until_ns=S)


def test_a_protocol_is_run_without_a_scenario_file():
    outcome = World(SIM, 3, own=Section(clients=3, counts=5)).run()
    assert outcome.is_held, outcome
    assert outcome.tally == {"counted": 15}


@pytest.mark.parametrize("kind", [Role, Fixture])
def test_what_a_stranger_fills_in_shows_its_fields(kind):
    """`help` and `inspect.signature` read annotations of things that are imported for type checkers only."""
    assert list(inspect.signature(kind).parameters) == list(kind.__struct_fields__)


KINDS = (*BorrowerMessage.__args__, *LeaderMessage.__args__)


class Small(Message, frozen=True):
    """Numbers between bounds, and a flag."""

    level: Annotated[int, msgspec.Meta(ge=3, le=4)]
    on: bool


class Fixed(Message, frozen=True):
    """Nothing else can stand in it."""

    level: Annotated[int, msgspec.Meta(ge=7, le=7)]


def differing(one, other):
    return [name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_field_of_each_message_is_forged_alone_and_is_what_the_wire_carries(kind):
    forger = Forger(Random(1), ["consumer-1~1/1", "0.0/a"])
    true = forger.make(kind)
    changed = set()
    for _ in range(300):
        lie = forger.forge(true)
        (name,) = differing(true, lie)
        changed.add(name)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(lie), type=kind) == lie
    assert changed == set(kind.__struct_fields__)


@pytest.mark.long
def test_reports_are_left_out_repeated_changed_and_made_up():
    forger = Forger(Random(2), ["0.0/a"])
    held = (Report("0.0/a", 1, 5, False), Report("0.0/b", 2, 7, True))
    true = Ping("c1~1/1", 1, 1, 1, held)
    lists = {lie.reports for _ in range(2_000) if (lie := forger.forge(true)).reports != held}
    assert {(), held[:1], held[1:], (*held, held[0])} <= lists
    assert any(len(one) == 3 and one[:2] == held and one[2] not in held for one in lists), "one that was made up"
    changed = {
        name for one in lists if len(one) == 2 for pair in zip(one, held, strict=True) for name in differing(*pair)
    }
    assert changed == set(Report.__struct_fields__)


def test_a_number_stays_within_its_bounds_and_a_field_without_another_value_as_it_is():
    forger = Forger(Random(3))
    lies = {forger.forge(Small(3, False)) for _ in range(50)}
    assert lies == {Small(4, False), Small(3, True)}
    assert forger.forge(Fixed(7)) == Fixed(7)


@pytest.mark.long
def test_what_was_heard_may_be_said_in_the_place_of_its_like():
    forger = Forger(Random(4))
    forger.learn(Ping("c2~1/1", 77, 5, 9, (Report("0.0/far", 41, 13, False),)))
    lies = [forger.forge(Ping("c1~1/1", 1, 1, 1, (Report("0.0/a", 1, 5, False),))) for _ in range(2_000)]
    assert 77 in {lie.epoch for lie in lies}
    assert 77 not in {lie.n for lie in lies}
    assert "c2~1/1" in {lie.borrower for lie in lies}
    reports = [report for lie in lies for report in lie.reports]
    assert {41} <= {report.grant for report in reports}
    assert "0.0/far" in {report.stream for report in reports}


def test_the_same_chance_forges_the_same():
    def lies(seed):
        forger = Forger(Random(seed), ["a", "b"])
        return [forger.forge(forger.make(kind)) for kind in KINDS for _ in range(5)]

    assert lies(5) == lies(5) != lies(6)


def test_a_type_that_nobody_can_forge_is_named():
    class Odd(Message, frozen=True):
        share: float

    with pytest.raises(TypeError, match="share: nobody knows how to forge a FloatType"):
        Forger(Random(1)).make(Odd)


def test_numbers_are_those_that_peers_may_send():
    assert {Forger(Random(seed)).make(Ping).n >= 0 for seed in range(50)} == {True}
    assert Number.__metadata__[0].le == 2**63 - 1
