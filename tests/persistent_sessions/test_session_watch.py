"""Who judges simulated sessions: every property is broken by hand, or by a mistake in what a node runs.

What the explorer finds in sessions, followed by real nodes: in the simulator, and on the asyncio runtime over
SQLite (`gapless check persistent_sessions --system NAME --variant as_written --script F`, `gapless replay F`).
"""

import json
from functools import cache
from pathlib import Path

import pytest
from counterexamples import random_walk
from msgspec.structs import replace

from statemachines import cli
from statemachines.drivers.persistent_sessions import client_requests, life_requests, machine_requests, session_row
from statemachines.drivers.persistent_sessions.outbox import Outbox
from statemachines.kernel import ConfigurationError, in_order
from statemachines.persistent_sessions import delivery, session_host_record, writer_actions
from statemachines.persistent_sessions.collector import (
    DeletePage,
    MessageDeletion,
    PageDeleted,
)
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.life_request import OpenSession, SessionOpen
from statemachines.persistent_sessions.message import Delivered, Farewell, Puback, Publish
from statemachines.persistent_sessions.request import CommitState, StateChange, StateCommitted
from statemachines.persistent_sessions.resume_record import SYNCING, YIELDING, ResumeRecord
from statemachines.persistent_sessions.session_host_record import LeaveClient, OwnerOpened, TakeAcknowledgements
from statemachines.persistent_sessions.takeover_record import TakeoverBegun
from statemachines.persistent_sessions.writer_flow import WAITING
from statemachines_sim.fault import Fault
from statemachines_sim.judge import Violation
from statemachines_sim.persistent_sessions import SIM, script_world
from statemachines_sim.persistent_sessions.asyncio_stage import run_live
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.persistent_sessions.watch import PROPERTIES
from statemachines_sim.scenario import Net, Phases, Scenario
from statemachines_sim.units import MS, S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.explore import explore
from statemachines_spec.liveness.judge import live
from statemachines_spec.persistent_sessions.counterexamples import ASIDE
from statemachines_spec.protocol import choose_systems
from statemachines_spec.script.path_to_script import script_of

OWN = SessionSection(subscribers=2, publishers=1, stay_s=(0, 0), ack_ms=(1, 5), receive_maximum=(10,))


def world_of(seed=1, until_ns=4 * S, schedule=(), safety_s=6.0, **keys):
    phases = Phases(safety_s, 20.0)
    scenario = Scenario("hand", SIM.name, replace(OWN, **keys), network=Net(fifo=True), phases=phases)
    world = World(scenario, seed, schedule=schedule)
    if until_ns:
        world.run(until_ns=until_ns)
    return world


@pytest.fixture
def world():
    return world_of()


def client_of(world):
    return world.processes["subscriber-1"]


def book_of(world):
    return world.watch.store.sessions[client_of(world).session]


def had(world):
    """Something that the client has had, under the packet."""
    return next(iter(in_order(book_of(world).delivered.had)))


def change(world, **fields):
    """What is delivered of the book of the client, changed by hand."""
    book = book_of(world)
    book.delivered = replace(book.delivered, **fields)
    return book.delivered


def deliver(world, key, packet, dup=False):
    topic_filter, name = key
    world.watch.observe_delivery(client_of(world), Delivered(packet, "home/1", name.encode(), topic_filter, 1, dup))


def broken(name, detail=""):
    return pytest.raises(Violation, match=f"{name}: .*{detail}")


def committed(world, asked, answer):
    """As if the database had carried it out."""
    store = world.watch.store
    store._kinds[type(asked)](asked, answer, world.now)


# -- messages -------------------------------------------------------------------------------------------------------


def test_TWICE_unmarked(world):
    key, packet = had(world)
    with broken("TWICE", "dup = False"):
        deliver(world, key, packet)


def test_TWICE_after_it_was_acknowledged_and_committed(world):
    key, packet = had(world)
    assert key in book_of(world).done
    with broken("TWICE", "has acknowledged"):
        deliver(world, key, packet, dup=True)
    book_of(world).done.discard(key)
    deliver(world, key, packet, dup=True)


def test_STRANGER_and_OLD(world):
    with broken("STRANGER"):
        deliver(world, ("home/+", "nobody:1"), 1)
    key, _ = had(world)
    book = book_of(world)
    old = replace(book, rows={key: book.rows.pop(key)})
    change(world, places=book.delivered.places.delete(key))
    world.watch.store.sessions["another"] = old
    with broken("OLD"):
        deliver(world, key, 1)


@pytest.mark.parametrize("why", ["superseded", "discarded"])
def test_SUPERSEDED_though_nobody_else_has_the_client_id(world, why):
    with broken("SUPERSEDED", why):
        client_of(world).hear(Farewell(why))


def test_GAP(world):
    seen = book_of(world).delivered
    writer, rows = next(iter(in_order(seen.writers)))
    before, key = (rows.copies[place] for place in (rows.last - 1, rows.last))
    left = replace(rows, last=rows.last - 2)
    change(world, had=seen.had.delete(key).delete(before), writers=seen.writers.set(writer, left))
    with broken("GAP", "has not come"):
        deliver(world, key, seen.had[key])
    change(world, excused=seen.excused.set(before, True))
    with broken("GAP", "after number"):
        deliver(world, key, seen.had[key])  # its publisher's later one has come


def test_ORDER_of_a_publisher_over_two_connections(world):
    watch, book = world.watch, book_of(world)
    topic_filter, name = next(iter(book.rows))
    early, late = [(topic_filter, f"publisher-1~{connection}:1") for connection in (98, 99)]
    for key in (early, late):
        book.put(key, replace(book.rows[topic_filter, name], writer=key[1]), is_needed=True)
        book.delivered = book.delivered.observe_committed([(key, 1)])
    before = book.delivered
    for key in (early, late):
        watch.observe_publish(key[1], "home/1", again=False)
    deliver(world, late, 1)
    book.delivered = before
    watch._publications = watch._publications.observe_answered(early[1]).observe_handed(late[1])
    with broken("ORDER", "answered before"):
        deliver(world, late, 1)


def test_UNCOMMITTED(world):
    key, packet = had(world)
    change(world, committed=book_of(world).delivered.committed.delete((key, packet)))
    with broken("UNCOMMITTED"):
        deliver(world, key, packet, dup=True)


def test_AGED(world):
    key, packet = had(world)
    change(world, over=book_of(world).delivered.over.set(key, True))
    with broken("AGED", "had expired before it was sent"):
        deliver(world, key, packet, dup=True)


def test_MAXIMUM(world):
    key, packet = had(world)
    client_of(world).open = set(range(11))
    with broken("MAXIMUM", "receives 10, and has 11"):
        deliver(world, key, packet, dup=True)


def test_UNSTORED(world):
    book = book_of(world)
    topic_filter = next(iter(book.subscribed))
    topic = topic_filter.replace("+", "1").replace("#", "1")
    world.watch.observe_publish("x:1", topic, again=False)
    with broken("UNSTORED"):
        world.watch.observe_answer("x:1")
    world.watch.observe_publish("x:2", "office/1", again=False)
    world.watch.observe_answer("x:2")


# -- sessions -------------------------------------------------------------------------------------------------------


def test_PRESENT_and_FORGOTTEN(world):
    client = client_of(world)
    world.watch.connecting(client, clean=False)
    with broken("PRESENT"):
        world.watch.observe_welcome(client, client.session, present=False)
    world.watch.connecting(client, clean=True)
    with broken("PRESENT", "begins clean"):
        world.watch.observe_welcome(client, client.session, present=True)


def opened(world, session, owner="node-1~1/99", token=1_000):
    return OpenSession("subscriber-1", owner, token, session, "", 60_000)


def test_FORGOTTEN(world):
    client = client_of(world)
    world.watch.connecting(client, clean=False)
    committed(world, opened(world, "new"), SessionOpen())
    with broken("FORGOTTEN"):
        world.watch.observe_welcome(client, "new", present=False)


def test_FORGOTTEN_an_owner_that_stands_still_for_longer_than_an_expiry_has_lost_its_session():
    """A collector of another node forgets the client, which has waited for less than `silent_ms`: a fresh session."""
    schedule = (Fault("pause", 2 * S, 2_900 * MS, f"node-{n}") for n in (1, 2))
    world = world_of(until_ns=0, schedule=tuple(schedule), expiry_ms=1_000)
    assert world.run().is_held


def test_EXPIRED():
    world = world_of(expiry_ms=1_000)
    client = client_of(world)
    world.watch.observe_left(client)
    book = world.watch.store.clients[client.node]
    book.left_ns = book.seen_ns = 0
    world.watch.connecting(client, clean=False)
    with broken("EXPIRED"):
        world.watch.observe_welcome(client, client.session, present=True)


def test_REUSED(world):
    store = world.watch.store
    store.opened = store.opened.observe_ended("subscriber-1")
    with broken("REUSED"):
        committed(world, opened(world, client_of(world).session), SessionOpen())


def test_STOLEN(world):
    book_of(world).token += 5
    with broken("STOLEN"):
        committed(world, CommitState(client_of(world).session, 1, StateChange()), StateCommitted())


def test_SPLIT(world):
    world.watch.says("node-1~1/3", TakeoverBegun("subscriber-1", 9))
    with broken("SPLIT"):
        world.watch.observe_send("node-1~1/3", Publish(1, "m", "t", 1, False))


def deletion(message, only):
    return DeletePage(messages=(MessageDeletion(message, only),)), PageDeleted(messages=((message, 0),))


def test_REDELIVERED_after_the_client_has_left(world):
    first, second = "node-1~9/1", "node-2~9/1"
    sent = Publish(1, "m1", "t", 1, False)
    acknowledged = TakeAcknowledgements(first, (Puback(1),))
    for event in (OwnerOpened(first, "s", 1, ""), sent, acknowledged, LeaveClient(first), SessionClosed("s", "left")):
        world.watch.observe_owner(first, event)
    world.watch.observe_owner(second, OwnerOpened(second, "s", 2, ""))
    world.watch.observe_owner(second, replace(sent, message="m2"))
    with broken("REDELIVERED", "m1"):
        world.watch.observe_owner(second, sent)


# -- the end ----------------------------------------------------------------------------------------------------------


def owner_in(world):
    """The machine of an owner."""
    hosts = [one.host for name, one in world.processes.items() if name.startswith("node-")]
    return next(node for host in hosts for node in host.nodes.values() if isinstance(node.record, ResumeRecord))


@pytest.fixture
def ended():
    """A world in which nothing is missing."""
    world = world_of(until_ns=0)
    assert world.run().is_held
    return world


def test_ENDS_and_TAKES(ended):
    node = owner_in(ended)
    record = node.record
    node.record = replace(record, status=SYNCING)
    assert ended.watch.missing(ended) == ("ENDS", f"{node.name} is syncing")
    node.record = replace(record, status=YIELDING)
    assert ended.watch.missing(ended) == ("TAKES", f"{node.name} has yielded, and is still there")
    (writer, flow), *_ = record.flows.items()
    node.record = replace(record, flows=record.flows.set(writer, replace(flow, status=WAITING)))
    assert ended.watch.missing(ended) == ("ENDS", f"{node.name} and {writer} are waiting")
    node.record = record
    ended.processes["node-1"].host.nodes["x"] = node
    assert ended.watch.missing(ended) == ("ENDS", "there are 3 owners of 2 clients")


def test_COUNTED(ended):
    node = owner_in(ended)
    node.record = replace(node.record, delivery=replace(node.record.delivery, lost=2))
    assert ended.watch.missing(ended) == ("COUNTED", f"{node.name} has counted 2 as lost, and nothing is")
    ended.watch.store.retained = True
    assert ended.watch.missing(ended) is None


def test_CONNECTS_and_COMPLETE_and_VANISH(ended):
    assert ended.watch.missing(ended) is None
    statements = ended.devices["database"].service
    statements.database.connection.execute("INSERT INTO messages VALUES (x'01', x'01', x'01', 1, 0, NULL)")
    assert ended.watch.missing(ended) == ("VANISH", "1 rows are left in messages")
    book = book_of(ended)
    key, packet = had(ended)
    book.packets = {packet: key}
    assert ended.watch.missing(ended)[0] == "COMPLETE"
    book.delivered = book.delivered.observe_stored("writer", ("t", "never:1"))
    assert ended.watch.missing(ended)[1].endswith("('t', 'never:1') has not come")
    client_of(ended).welcome = False
    assert ended.watch.missing(ended) == ("CONNECTS", "subscriber-1 is not connected")


# -- mistakes in what nodes run ---------------------------------------------------------------------------------------


def outcome_of(seeds=3, **keys):
    """The first run that breaks something."""
    for seed in range(seeds):
        outcome = world_of(seed, 0, **keys).run()
        if not outcome.is_held:
            return outcome.monitor
    return ""


SLOW = {"receive_maximum": (1,), "ack_ms": (200, 400)}
AGING = {**SLOW, "expires": 0.5, "message_expiry_ms": (50, 2_000)}
BEHIND = {**AGING, "queue": 1, "message_grace_ms": 50, "round_ms": 100}
"""What the client has no room for waits in the database."""
SHORT = {**BEHIND, "message_expiry_ms": (50, 600), "ack_ms": (500, 900)}
PAUSED = {
    "schedule": tuple(Fault("pause", 1_500 * MS, 6 * S, f"node-{number}") for number in (1, 2)),
    "safety_s": 10.0,
}
LEAPS = {"schedule": (Fault("leap_ahead", 3 * S, 0, "database", amount=24 * 3_600 * S),), "queue": 1}
AWAY = {"stay_s": (1, 1), "away_ms": (2_000, 4_000), "leave": 1.0, "discard": 0.0, "clean": 0.0, "resubscribe": 0.0}
MOVES = {"stay_s": (1, 2), "away_ms": (1, 400), "leave": 0.0, "clean": 0.0, "discard": 0.0, "resubscribe": 0.0}


def no_marks(courier, messages):
    """Nothing says that they have come before."""
    courier_bring(courier, [replace(one, dup=False) if isinstance(one, Publish) else one for one in messages])


courier_bring = Outbox.bring
numbered = writer_actions.number_rows


def without_until(*given):
    return tuple(replace(row, until_ns=0) for row in numbered(*given))


@pytest.mark.parametrize(
    ("place", "name", "mistake", "found", "keys"),
    [
        (Outbox, "bring", no_marks, "TWICE", {**MOVES, "ack_ms": (300, 800)}),
        (session_row, "is_owned", lambda sql, session, token: True, "STOLEN", {**PAUSED, "ack_ms": (1, 900)}),
        (delivery, "has_room", lambda record, packets: True, "InvariantViolated", SLOW),
        (delivery, "is_over", lambda queued, now_ns: False, "AGED", AGING),
        (delivery, "is_over", lambda queued, now_ns: queued.until_ns > 0, "GAP", AGING),
        (writer_actions, "number_rows", without_until, "AGED", AGING),
        (machine_requests, "without_message", lambda row, now_ns: replace(row, message=""), "COUNTED", SHORT),
        (Outbox, "bring", None, "COMPLETE", {}),
        (client_requests.ClientRequests, "_answer", None, "CONNECTS", {}),
        (life_requests, "abandon", lambda sql, session: None, "VANISH", {**MOVES, "clean": 1.0}),
        (session_host_record, "has_leapt", lambda shown_ns, expected_ns: False, "FORGOTTEN", {**LEAPS, **AWAY}),
        (
            session_host_record,
            "has_leapt",
            lambda shown_ns, expected_ns: False,
            "KEPT",
            {**LEAPS, **SLOW, "expiry_ms": -1},
        ),
    ],
    ids=[
        "unmarked",
        "anybody",
        "maximum",
        "sent-though-over",
        "over-too-early",
        "expiry-not-kept",
        "over-counts-as-lost",
        "undelivered",
        "unanswered",
        "not-abandoned",
        "leap-counts-for-sessions",
        "leap-counts-for-messages",
    ],
)
def test_a_mistake_in_a_node_is_found(monkeypatch, place, name, mistake, found, keys):
    monkeypatch.setattr(place, name, mistake or (lambda *given, **named: None))
    assert outcome_of(**keys) == found


def test_PS_291_nothing_is_gone_early_where_the_clock_of_the_database_leaps():
    for keys in ({**LEAPS, **AWAY}, {**LEAPS, **SLOW, "expiry_ms": -1}):
        assert outcome_of(seeds=1, **keys) == ""


def test_every_property_is_broken_here():
    text = Path(__file__).read_text()
    assert [one for one in PROPERTIES if one not in text] == []


PS = "persistent_sessions"
SETTLED = "settled"


def simulate(script, variant=""):
    return script_world.simulate(script, variant).replayed


@pytest.fixture(params=[simulate, run_live], ids=["simulated", "runtime"])
def follow(request):
    return request.param


@cache
def script_to(name):
    """The shortest run to what breaks there."""
    return found_in(name, ASIDE[name].rules)


def found_in(name, variant, bug=""):
    (made,) = choose_systems(PS, (name,), variant=variant).systems
    alone = replace(made, origin=None)  # no other process has the bug
    path = explore(alone, engine="plain", hashing=False).path
    return script_of(made, path, protocol=PS, variant=variant, bug=bug)


def test_a_file_has_no_replica_that_shows_entries_later():
    (made,) = choose_systems(PS, ("buffer",)).systems
    script = script_of(made, random_walk(made, 0, 30), protocol=PS, variant=SETTLED)
    replayed = run_live(script)
    assert (replayed.broken, replayed.followed.steps) == ({}, [one.what for one in script.steps].index("appear"))
    assert "a file has no replica that shows entries later" in replayed.followed.stopped


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_takeovers_are_for_the_simulator(seed):
    (made,) = choose_systems(PS, ("old-dies",)).systems
    script = script_of(made, random_walk(made, seed, 24), protocol=PS, variant=SETTLED)
    replayed = simulate(script)
    assert (replayed.broken, replayed.followed.stopped, replayed.followed.missing) == ({}, "", ())
    with pytest.raises(ConfigurationError, match=r"old-dies.*has takeovers.*leave --runtime out"):
        run_live(script)


def test_what_cannot_happen_ends_the_run_and_is_named(follow):
    """Nothing was published, so nothing is on the path that is to break."""
    script = script_to("path-broken")
    assert (script.steps[-2].what, script.steps[-1].what) == ("publish_to", "break")
    less = replace(script, steps=(*script.steps[:-2], script.steps[-1])).check()
    replayed = follow(less)
    assert (replayed.broken, replayed.followed.steps) == ({}, len(less.steps) - 1)
    assert "cannot happen to cluster now" in replayed.followed.stopped


PLANTED = {
    "live-kept-before-the-marker": "overtaking",
    "link-is-not-watched": "break",
    "fenced-row-dropped": "silence",
    "redelivery-not-marked": "at-least-once",
    "dead-writers-left-out": "range",
}
"""Bug -> a system that finds it."""


@cache
def script_of_bug(bug):
    with plant_bug(f"{PS}/{bug}"):
        return found_in(PLANTED[bug], SETTLED, f"{PS}/{bug}")


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_breaks_the_same_and_nothing_breaks_without_it(bug, follow):
    script = script_of_bug(bug)
    replayed = follow(script)
    assert (replayed.reached, replayed.followed.stopped) == (True, "")
    assert follow(script, SETTLED).broken == {}


def test_a_run_of_what_is_never_met_comes_as_a_script_too():
    """The explorer gives a silent writer no timeout; nodes have one, and are done."""
    bug = f"{PS}/marker-not-shown"
    (made,) = choose_systems(PS, ("marked",)).systems
    with plant_bug(bug):
        judged = live(replace(made, origin=None), made.obligations, engine="plain")
        script = script_of(made, next(one.run for one in judged if not one.is_held), protocol=PS, bug=bug)
    assert script.breaks.startswith("ENDS")
    assert simulate(script).broken == {}


LAGGING = ("silence", "buffer")
WALKED = ("overtaking", "break", "marked", "leaving", "receive-maximum", "exactly-once", "slow-fence", "writer-begins")
WALKS = 3


@pytest.mark.parametrize("name", [*LAGGING, *WALKED])
def test_what_the_explorer_walks_real_nodes_walk_too(name):
    """Random runs of the shipped machines, with all that a system has: what is sent is the same, and nothing breaks; on
    a file, too, where no replica lags."""
    (made,) = choose_systems(PS, (name,)).systems
    for seed in range(WALKS):
        script = script_of(made, random_walk(made, seed, 30), protocol=PS, variant=SETTLED)
        assert len(script.steps) > 8
        for follow in (simulate,) if name in LAGGING else (simulate, run_live):
            replayed = follow(script)
            assert (replayed.broken, replayed.followed.stopped, replayed.followed.missing) == ({}, "", ()), seed


def test_what_breaks_is_listed_apart_and_no_part_of_a_whole_check(capsys):
    assert cli.run(["check", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)[PS]
    assert set(listed["aside"]) == set(ASIDE)
    assert not set(listed["aside"]) & set(listed["systems"])
    assert cli.run(["check", PS, "--system", "path-brokens"]) == 2
