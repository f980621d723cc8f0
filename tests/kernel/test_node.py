"""Node: timers, order, snapshot, invariants.

`transitions` takes the steps of whole programs: simulated ones, and real ones over TCP.

The declaration and the step: what DESIGN calls "Declaration", "Step", "Compiled dispatch".
"""

import contextlib
import random
from enum import Enum
from unittest.mock import patch

import pytest
from office import DOOR, Bell, Door, DoorRecord, Draught, Knock, Pull, Push, Rang, Remove
from waiting import run_async

from statemachines import catalogue, kernel
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
from statemachines.kernel import ConfigurationError, Fsm, Node
from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines_bench.dispatch import new_record
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World


def door(**options):
    seen = []
    node = kernel.Node(
        DOOR,
        DoorRecord(),
        name="d~1",
        now_ns=0,
        observe=lambda node, event, before, step, now_ns: seen.append((type(event).__name__, step.row)),
        **options,
    )
    return node, seen


def test_timers_with_patience_fire_after_the_event_that_woke_the_process():
    node, seen = door()
    assert node.deadline() == 100
    assert node.feed(Pull(), 1_000) == []
    assert [name for name, _ in seen] == ["Pull"]
    assert node.fire(1_000) == [], "it has heard of somebody, and set its timer anew"
    assert node.record.status is Door.OPEN


def test_timers_stay_inside_and_the_deadline_follows():
    node, _ = door()
    node.feed(Push(force=2), 10)
    assert node.deadline() is None
    node.feed(Knock("ann"), 20)
    assert node.deadline() == 25
    node.feed(Knock("bob"), 24)
    assert node.deadline() == 29
    assert node.fire(28) == []
    assert node.fire(29) == [kernel.Tell(Rang(2))]


def test_a_late_firing_is_a_legal_input():
    node, _ = door()
    assert node.feed(Bell(), 1) == []


def test_a_stopped_node_says_so():
    node, _ = door()
    assert node.feed(Remove(), 1) == [kernel.Stop()]
    assert node.stopped
    assert node.deadline() is None
    with pytest.raises(kernel.LocalProtocolError, match="has stopped"):
        node.feed(Pull(), 2)


def test_a_snapshot_restores_record_and_timers():
    node, _ = door()
    node.feed(Push(force=2), 10)
    node.feed(Knock("ann"), 20)
    twin = kernel.Node.restore(DOOR, node.snapshot())
    assert (twin.record, twin.armed_timers(), twin.name) == (node.record, node.armed_timers(), node.name)
    assert twin.snapshot() == node.snapshot()
    assert twin.fire(25) == node.fire(25)


def test_an_invariant_names_itself_and_the_row():
    node, _ = door(check=True)
    node.feed(Push(force=2), 1)
    node.feed(Knock("a"), 2)
    node.feed(Knock("b"), 3)
    with pytest.raises(kernel.InvariantViolated, match="few-knocks does not hold after row 5 on Knock"):
        node.feed(Knock("c"), 4)


def test_many_rearmed_timers_do_not_pile_up():
    node, _ = door()
    for turn in range(10_000):
        node.feed(Pull(), turn)
    assert len(node._heap) < 100
    assert node.armed_timers() == {("draught", ""): 10_099}


def test_effects_of_due_timers_are_not_lost_when_the_event_behind_them_is_refused():
    from statemachines.kernel import RemoteProtocolError
    from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerRecord
    from statemachines.shared_subscriptions.configuration import MS, Configuration
    from statemachines.shared_subscriptions.message import LeaderWanted, Revoked

    def borrower():
        return kernel.Node(BORROWER, BorrowerRecord("c~1/1", "g", "#", ("l",), Configuration()), name="c~1/1", now_ns=0)

    asks = kernel.Send("l", LeaderWanted("c~1/1", "g", "#"))
    node = borrower()
    node._arm(kernel.SetTimer("find_leader", 0), 0)  # to go on at once, whatever the machine
    with pytest.raises(RemoteProtocolError):
        node.feed(LeaderWanted("x", "g", "#"), 10 * MS)
    assert node.deadline() == 0
    assert node.fire_one(10 * MS) == [asks]
    assert node.deadline() == 1_010 * MS, "asked once"
    node = borrower()
    node._arm(kernel.SetTimer("find_leader", 0), 0)
    host = kernel.Host()
    host.add(node)
    with pytest.raises(RemoteProtocolError):
        host.feed("c~1/1", LeaderWanted("x", "g", "#"), 10 * MS)
    assert host.deadline() == 0
    ignored = Revoked("c~1/1", 1, 1, "s", 1)
    assert host.feed("c~1/1", ignored, 10 * MS) == [("c~1/1", asks)]


@pytest.mark.parametrize("seed", range(20))
def test_who_asks_for_the_deadline_only_when_it_has_moved_always_knows_it(seed):
    chance = random.Random(seed)
    node, host = door()[0], kernel.Host()
    for name in ("d~1", "e~1"):
        host.add(kernel.Node(DOOR, DoorRecord(), name=name, now_ns=0))
    known, now, quiet = {}, 0, 0
    for _ in range(300):
        now += chance.choice((0, 1, 3, 200))
        event = chance.choice((*[Pull(), Knock("ann"), Push(force=2), Bell()] * 25, Remove()))
        with contextlib.suppress(kernel.ProtocolError):
            node.feed(event, now)
        with contextlib.suppress(kernel.ProtocolError):
            host.feed(chance.choice(("d~1", "e~1")), event, now)
        if chance.random() < 0.1:
            host.fire(now)
            node.fire(now)
        for one in (node, host):
            if one.moved:
                known[one] = one.deadline()
                one.moved = False
            else:
                quiet += 1
            assert one.deadline() == known[one]
    assert quiet > 50


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


@pytest.mark.long
def test_a_group_over_tcp_is_stepped_by_transitions(steps, tmp_path):
    async def consume(store):
        async with LeaderNode(listen=("127.0.0.1", 0), store=store) as leader, Publisher(store) as publisher:
            await publisher.publish("news", [b"1", b"2"])
            where = "{}:{}".format(*leader.address)
            async with SharedSubscription("$shared/g/#", leader=where, store=store, start="beginning") as messages:
                return [(await anext(aiter(messages))).payload for _ in range(2)]

    catalogue.use_engine("transitions")
    assert run_async(consume(tmp_path / "messages.db")) == [b"1", b"2"]
    assert steps >= {"borrower", "stream", "leader", "assignment", "session"}


def test_a_node_is_told_its_engine_and_no_other_name_is_taken(steps):
    with pytest.raises(ConfigurationError, match="engine = 'hand': must be one of compiled, transitions"):
        Node(BORROWER, new_record(), name="b", now_ns=0, engine="hand")
    node = Node(BORROWER, new_record(), name="b", now_ns=0, engine="transitions")
    node.fire(10**12)
    assert steps == {"borrower"}


def test_the_first_row_whose_guard_holds_is_taken():
    strong = DOOR.step(DoorRecord(), Push(force=2), 0)
    weak = DOOR.step(DoorRecord(), Push(force=1), 0)
    assert (strong.row, strong.record.status) == (0, Door.CLOSED)
    assert (weak.row, weak.record.status) == (1, Door.OPEN)


def test_entering_arms_and_leaving_cancels():
    assert DOOR.start(DoorRecord(), 7) == (kernel.SetTimer("draught", 107),)
    assert (
        DOOR.step(DoorRecord(), Push(force=2), 0).effects
        == (kernel.CancelTimer("draught"), kernel.CancelTimer("bell"))[:1]
    )
    back = DOOR.step(DoorRecord(status=Door.CLOSED), Pull(), 50)
    assert back.effects == (kernel.CancelTimer("bell"), kernel.SetTimer("draught", 150))


def test_a_reflexive_row_leaves_and_enters_and_an_internal_one_does_not():
    assert DOOR.step(DoorRecord(), Pull(), 9).effects == (
        kernel.CancelTimer("draught"),
        kernel.SetTimer("draught", 109),
    )
    assert DOOR.step(DoorRecord(), Push(), 9).effects == ()


def test_an_ignore_is_a_numbered_row_without_effect():
    step = DOOR.step(DoorRecord(), Bell(), 0)
    assert (step.record, step.effects) == (DoorRecord(), ())
    assert DOOR.lines[step.row].kind == "ignore"


def test_a_refused_call_is_the_hosts_fault_and_names_state_event_and_clause():
    with pytest.raises(kernel.LocalProtocolError, match=r"door in state closed got push: .* \[T-10\]"):
        DOOR.step(DoorRecord(status=Door.CLOSED), Push(), 0)


def test_an_unknown_event_is_an_error_of_whoever_sent_it():
    class Letter(Knock, frozen=True):
        pass

    class Kick(Push, frozen=True):
        pass

    with pytest.raises(kernel.RemoteProtocolError, match="does not take"):
        DOOR.step(DoorRecord(), Letter("x"), 0)
    with pytest.raises(kernel.LocalProtocolError, match="does not take"):
        DOOR.step(DoorRecord(), Kick(), 0)


def test_a_final_state_takes_nothing():
    with pytest.raises(kernel.LocalProtocolError, match="has stopped"):
        DOOR.step(DoorRecord(status=Door.GONE), Pull(), 0)


def test_a_wildcard_source_is_every_state_that_is_not_final():
    line = next(line for line in DOOR.lines if line.event is Remove)
    assert line.sources == (Door.OPEN, Door.CLOSED)
    assert DOOR.step(DoorRecord(), Remove(), 0).effects == (kernel.CancelTimer("draught"), kernel.Stop())


def test_actions_see_the_event_and_the_time():
    step = DOOR.step(DoorRecord(status=Door.CLOSED), Knock("ann"), 10)
    assert step.effects == (kernel.Send("ann", Knock("door")), kernel.SetTimer("bell", 15))


def test_guards_that_all_fail_take_no_row():
    fsm = kernel.Fsm(
        "shy",
        record=DoorRecord,
        states=Door,
        initial=Door.OPEN,
        final=(Door.CLOSED, Door.GONE),
        rows=(kernel.Row(Push, Door.OPEN, Door.CLOSED, None, lambda record, event: False, "T-1"),),
    )
    for engine in (fsm.step, fsm.reference_step):
        step = engine(DoorRecord(), Push(), 0)
        assert (step.record, step.effects, step.row) == (DoorRecord(), (), -1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((kernel.Row(Push, Door.OPEN, Door.CLOSED, None, None, "T-1"),), "undecided cells.*closed x push"),
        ((kernel.Row(Push, Door.GONE, Door.OPEN, None, None, "T-1"),), "leaves a final state"),
        ((kernel.Row(Push, Door.OPEN, Enum("Other", "X").X, None, None, "T-1"),), "not one of its states"),
        ((kernel.Ignore((Push,), (Door.OPEN, Door.CLOSED), ""),), "no clause"),
    ],
)
def test_a_table_that_is_not_a_machine_is_refused_by_name(rows, message):
    with pytest.raises(kernel.DeclarationError, match=message):
        kernel.Fsm("bad", record=DoorRecord, states=Door, initial=Door.OPEN, final=(Door.GONE,), rows=rows)


def test_a_timer_that_nothing_takes_is_refused():
    with pytest.raises(kernel.DeclarationError, match="nothing takes draught"):
        kernel.Fsm(
            "deaf",
            record=DoorRecord,
            states=Door,
            initial=Door.OPEN,
            final=(Door.GONE,),
            rows=(kernel.Ignore((Push,), (Door.OPEN, Door.CLOSED), "T-1"),),
            timers=(kernel.Timer("draught", Draught, (Door.OPEN,), lambda record: 1),),
        )
