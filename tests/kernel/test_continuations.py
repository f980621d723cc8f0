"""Continuations: a timer that is set for now goes on before the next event; what has patience fires after it."""

from __future__ import annotations

from enum import Enum

import msgspec
import pytest
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Fsm, Host, Node, Row, SetTimer, Tell, Timer, TimerFired


class Reader(Enum):
    READS = "reads"


class Poll(TimerFired, frozen=True):
    """Look for more."""


class End(TimerFired, frozen=True):
    """It may not read any more."""


class GiveUp(TimerFired, frozen=True):
    """Nobody has answered."""


class Go(Call, frozen=True):
    """Polls at `at_ns`; may read until `end_ns` (-1: as before)."""

    at_ns: int
    end_ns: int = -1


class Twice(Call, frozen=True):
    """Polls now; or rather a little later."""


class Answered(Call, frozen=True):
    """Somebody has answered."""


class Tick(Call, frozen=True):
    """Something else happens."""


class Held(msgspec.Struct, frozen=True):
    status: Reader = Reader.READS
    seen: tuple[str, ...] = ()


def noted(*effects):
    def act(record, event, now_ns):
        return replace(record, seen=(*record.seen, type(event).__name__)), (Tell(event), *effects)

    return act


def go(record, event, now_ns):
    end = () if event.end_ns < 0 else (SetTimer("end", event.end_ns),)
    return record, (SetTimer("poll", event.at_ns), *end)


def twice(record, event, now_ns):
    return record, (SetTimer("poll", now_ns), SetTimer("poll", now_ns + 4))


READER = Fsm(
    "reader",
    protocol="continuations",
    record=Held,
    states=Reader,
    initial=Reader.READS,
    rows=(
        Row(Go, Reader.READS, STAY, go, None, "C-1"),
        Row(Twice, Reader.READS, STAY, twice, None, "C-1"),
        Row(Poll, Reader.READS, STAY, noted(), None, "C-1"),
        Row(End, Reader.READS, STAY, noted(), None, "C-2"),
        Row(GiveUp, Reader.READS, STAY, noted(), None, "C-3"),
        Row(Answered, Reader.READS, STAY, noted(SetTimer("give_up", 10**6)), None, "C-3"),
        Row(Tick, Reader.READS, STAY, noted(), None, "C-4"),
    ),
    timers=(
        Timer("give_up", GiveUp, (Reader.READS,), lambda record: 100, once=True),
        Timer("poll", Poll, (Reader.READS,), lambda record: 0, on_entry=False),
        Timer("end", End, (Reader.READS,), authority=True),
    ),
)


class Alone:
    """A node as it is embedded without a host."""

    def __init__(self):
        self.node = Node(READER, Held(), name="a~1", now_ns=0)

    def feed(self, event, now_ns):
        return [type(effect.event).__name__ for effect in self.node.feed(event, now_ns)]

    def fire(self, now_ns):
        return [type(effect.event).__name__ for effect in self.node.fire(now_ns)]

    def restored(self):
        self.node = Node.restore(READER, self.node.snapshot())


class Hosted(Alone):
    """The same within a host."""

    def __init__(self):
        super().__init__()
        self.restored()

    def feed(self, event, now_ns):
        return [type(effect.event).__name__ for _, effect in self.host.feed("a~1", event, now_ns)]

    def fire(self, now_ns):
        return [type(effect.event).__name__ for _, effect in self.host.fire(now_ns)]

    def restored(self):
        super().restored()
        self.host = Host()
        self.host.add(self.node)


@pytest.fixture(params=[Alone, Hosted])
def one(request):
    return request.param()


def test_what_is_set_for_now_goes_on_before_the_next_event(one):
    assert one.feed(Go(5), 5) == []
    assert one.feed(Tick(), 7) == ["Poll", "Tick"]
    assert one.feed(Tick(), 8) == ["Tick"], "once"


def test_what_is_set_for_a_moment_that_is_over_goes_on_as_well(one):
    one.feed(Go(3), 5)
    assert one.feed(Tick(), 5) == ["Poll", "Tick"]


def test_what_is_set_for_later_has_patience(one):
    one.feed(Go(6), 5)
    assert one.feed(Tick(), 50) == ["Tick"]
    assert one.fire(50) == ["Poll"]


def test_what_is_set_for_later_instead_has_patience_again(one):
    one.feed(Twice(), 5)
    assert one.feed(Tick(), 50) == ["Tick"]
    assert one.fire(50) == ["Poll"]


def test_an_answer_that_waited_is_heard_before_anybody_is_given_up(one):
    assert one.feed(Answered(), 5_000) == ["Answered"]
    assert one.fire(5_000) == []


def test_who_has_not_answered_is_given_up_in_the_same_turn(one):
    assert one.feed(Tick(), 5_000) == ["Tick"]
    assert one.fire(5_000) == ["GiveUp"]


def test_a_right_ends_before_what_would_go_on_under_it(one):
    """It was to poll at 5, and stood still until its right was over."""
    one.feed(Go(5, end_ns=40), 5)
    assert one.feed(Tick(), 50) == ["End", "Poll", "Tick"]


def test_a_turn_fires_what_ends_a_right_what_goes_on_and_what_has_patience(one):
    one.feed(Go(400, end_ns=450), 400)
    assert one.fire(500) == ["End", "Poll", "GiveUp"]


def test_a_snapshot_knows_what_goes_on(one):
    one.feed(Go(5), 5)
    one.restored()
    assert one.feed(Tick(), 50) == ["Poll", "Tick"]


def test_a_snapshot_of_before_knows_of_nothing_that_goes_on():
    node = Node(READER, Held(), name="a~1", now_ns=0)
    old = msgspec.json.decode(node.snapshot())
    del old["soon"]
    assert Node.restore(READER, msgspec.json.encode(old)).armed_timers() == node.armed_timers()


def test_what_goes_on_at_another_node_comes_before_the_event_too():
    host = Host()
    for name in ("a~1", "b~1"):
        host.add(Node(READER, Held(), name=name, now_ns=0))
    host.feed("b~1", Go(5), 5)
    out = host.feed("a~1", Tick(), 6)
    assert [(party, type(effect.event).__name__) for party, effect in out] == [("b~1", "Poll"), ("a~1", "Tick")]


def test_patience_goes_by_deadline_across_the_nodes_of_a_host():
    """Of two timers of one node that of another may lie between."""
    host = Host()
    for name in ("a~1", "b~1"):
        host.add(Node(READER, Held(), name=name, now_ns=0))
    host.feed("a~1", Go(50), 0)
    host.feed("b~1", Go(70), 0)
    fired = [(party, type(effect.event).__name__) for party, effect in host.fire(100)]
    assert fired == [("a~1", "Poll"), ("b~1", "Poll"), ("a~1", "GiveUp"), ("b~1", "GiveUp")]


def test_what_a_timer_sets_for_now_goes_on_before_the_others_that_are_due():
    host = Host()
    for name in ("a~1", "b~1"):
        host.add(Node(READER, Held(), name=name, now_ns=0))
    watched = []
    node = host.nodes["a~1"]
    node._observe = lambda one, event, before, step, now_ns: (
        watched.append(type(event).__name__),
        isinstance(event, GiveUp) and one._arm(SetTimer("poll", now_ns), now_ns),
    )
    fired = [(party, type(effect.event).__name__) for party, effect in host.fire(150)]
    assert fired == [("a~1", "GiveUp"), ("a~1", "Poll"), ("b~1", "GiveUp")]
