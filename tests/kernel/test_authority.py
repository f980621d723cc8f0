"""Timers of authority: of all that is due they fire first, in a node and across the nodes of a host."""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Fsm, Host, Node, Row, SetTimer, Tell, Timer, TimerFired


class Place(Enum):
    HELD = "held"
    LOST = "lost"


class End(TimerFired, frozen=True):
    """What it may do is over."""


class Work(TimerFired, frozen=True):
    """Time to do it."""


class Extend(Call, frozen=True):
    """It may for longer: until `end_ns`."""

    end_ns: int


class Holder(msgspec.Struct, frozen=True):
    status: Place = Place.HELD
    worked: int = 0


def work(record, event, now_ns):
    return replace(record, worked=record.worked + 1), (Tell(event), SetTimer("work", now_ns + 10))


def lose(record, event, now_ns):
    return record, (Tell(event),)


def extend(record, event, now_ns):
    return record, (SetTimer("end", event.end_ns),)


class Haste(Call, frozen=True):
    """It works at once."""


def haste(record, event, now_ns):
    return record, (SetTimer("work", now_ns),)


class Again(TimerFired, frozen=True):
    """It goes on."""


def go_on(record, event, now_ns):
    return record, (Tell(event), SetTimer("again", now_ns + 100))


def keeper():
    """One that goes on when it has lost its right."""
    return Fsm(
        "keeper",
        protocol="authority",
        record=Holder,
        states=Place,
        initial=Place.HELD,
        final=(Place.LOST,),
        rows=(
            Row(Again, Place.HELD, STAY, go_on, None, "A-4"),
            Row(End, Place.HELD, STAY, lose, None, "A-5"),
            Row(Extend, Place.HELD, Place.LOST, None, None, "A-6"),
        ),
        timers=(
            Timer("again", Again, (Place.HELD,), lambda record: 100, once=True),
            Timer("last", End, (Place.HELD,), lambda record: 100, once=True, authority=True),
        ),
    )


def machine(authority=True, children=()):
    return Fsm(
        "holder",
        protocol="authority",
        record=Holder,
        states=Place,
        initial=Place.HELD,
        rows=(
            Row(Work, Place.HELD, STAY, work, None, "A-1"),
            Row(End, Place.HELD, Place.LOST, lose, None, "A-2"),
            Row(Extend, Place.HELD, STAY, extend, None, "A-3"),
            Row(Extend, Place.LOST, STAY, None, None, "A-3"),
            Row(Haste, Place.HELD, STAY, haste, None, "A-7"),
            Row(Haste, Place.LOST, STAY, None, None, "A-7"),
            Row(Work, Place.LOST, STAY, None, None, "A-1"),
            Row(End, Place.LOST, STAY, None, None, "A-2"),
        ),
        timers=(
            Timer("work", Work, (Place.HELD,), lambda record: 10, once=True),
            Timer("end", End, (Place.HELD,), lambda record: 100, once=True, authority=authority),
        ),
        children=children,
    )


def node(name="a~1", fsm=None):
    return Node(fsm or machine(), Holder(), name=name, now_ns=0)


def test_of_all_that_is_due_what_ends_a_right_fires_first():
    one = node()
    assert one.fire(500) == [Tell(End())]
    assert one.record.worked == 0


def test_without_authority_the_earliest_fires_first():
    one = node(fsm=machine(authority=False))
    one.fire(500)
    assert one.record.worked == 1


def test_before_its_end_everything_goes_by_deadline():
    one = node()
    for now in range(10, 100, 10):
        assert one.fire(now) == [Tell(Work())]
    assert one.fire(100) == [Tell(End())], "both are due at once"
    assert one.record.worked == 9


def test_an_end_that_was_moved_counts_as_it_is_now():
    one = node()
    one.feed(Extend(1_000), 5)
    assert one.fire(500) == [Tell(Work())]
    one.feed(Extend(600), 505)
    assert one.fire(700) == [Tell(End())]


def test_an_end_that_was_set_for_a_moment_that_is_over_fires_before_the_next_event():
    one = node()
    one.feed(Extend(1), 5)
    assert one.feed(Extend(1_000), 6) == [Tell(End())]
    assert one.record.status is Place.LOST


def test_a_snapshot_keeps_what_comes_first():
    before = node()
    before.feed(Extend(1_000), 5)
    before.feed(Extend(50), 6)
    one = Node.restore(machine(), before.snapshot())
    assert one.authority_deadline() == 50
    assert one.fire(500) == [Tell(End())]


def test_what_is_due_at_the_same_moment_waits_for_what_ends_a_right():
    """By its name, too, the other one would come first."""
    one = Node(keeper(), Holder(), name="a~1", now_ns=0)
    assert one.fire(100) == [Tell(End()), Tell(Again())]


def test_what_goes_on_afterwards_loses_no_timer():
    one = Node(keeper(), Holder(), name="a~1", now_ns=0)
    one.fire(500)
    assert one.armed_timers() == {("again", ""): 600}
    assert one.fire(600) == [Tell(Again())]


def test_timers_of_child_machines_have_their_class():
    assert machine(children=(keeper(),)).authority == {"end", "last"}


def test_ends_that_are_moved_often_do_not_pile_up():
    one = node()
    for turn in range(10_000, 1_000, -1):
        one.feed(Extend(turn), 0)
    assert len(one._first) < 100
    assert one.authority_deadline() == 1_001


def test_in_a_host_the_ends_of_all_come_before_what_others_would_do():
    host = three()
    out = host.fire(500)
    assert out == [("c~1", Tell(End())), ("b~1", Tell(End())), ("a~1", Tell(Work()))]
    assert host.deadline() == 510


def test_before_an_event_the_ends_of_all_come_and_what_has_patience_after_it():
    host = three()
    assert host.feed("a~1", Extend(20_000), 500) == [("c~1", Tell(End())), ("b~1", Tell(End()))]
    assert host.nodes["a~1"].record.worked == 0
    assert host.deadline() == 10
    assert host.fire(500) == [("a~1", Tell(Work()))]


def three():
    """Nodes whose ends come at 10 000, 100 and 50, and whose work was due at 10."""
    host = Host()
    for name in ("a~1", "b~1", "c~1"):
        host.add(node(name))
    host.feed("a~1", Extend(10_000), 0)
    host.feed("c~1", Extend(50), 0)
    return host


def test_ends_of_many_nodes_that_are_moved_often_do_not_pile_up():
    host = Host()
    for name in ("a~1", "b~1", "c~1"):
        host.add(node(name))
    for turn in range(1_000):
        for name in host.nodes:
            host.feed(name, Extend(10**6 + turn), 0)
    assert len(host._authority.heap) <= 65
    assert host._authority.first() == (10**6 + 999, "a~1")


def test_an_end_at_one_node_comes_before_what_goes_on_at_another():
    """`a~1` was to work at once, when the host stood still until the end of `b~1`."""
    host = Host()
    for name in ("a~1", "b~1"):
        host.add(node(name))
    host.feed("a~1", Extend(10_000), 0)
    host.nodes["a~1"].take(Haste(), 0)
    host._schedule(host.nodes["a~1"])
    assert host.feed("b~1", Extend(1), 500) == [("b~1", Tell(End())), ("a~1", Tell(Work()))]


def test_a_node_that_was_taken_out_owes_nothing():
    host = three()
    host.nodes["c~1"].take(Haste(), 0)
    host._schedule(host.nodes["c~1"])
    host.remove("c~1")
    assert host.feed("a~1", Extend(20_000), 500) == [("b~1", Tell(End()))]
    assert host.fire(500) == [("a~1", Tell(Work()))]
