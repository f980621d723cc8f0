"""Node: timers, order, snapshot, invariants."""

from __future__ import annotations

import contextlib
import random

import pytest
from door import DOOR, Bell, Door, DoorRecord, Knock, Pull, Push, Rang, Remove

from statemachines import kernel


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
