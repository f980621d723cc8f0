"""Timers of authority: of all that is due they fire first, in a node and across the nodes of a host.

Continuations: a timer that is set for now goes on before the next event; what has patience fires after it.

Compiled dispatch and the `transitions` engine agree on random declarations.
"""

from __future__ import annotations

from enum import Enum

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines import kernel
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


class Reader(Enum):
    READS = "reads"


class Poll(TimerFired, frozen=True):
    """Look for more."""


class ContinuationsEnd(TimerFired, frozen=True):
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
        Row(ContinuationsEnd, Reader.READS, STAY, noted(), None, "C-2"),
        Row(GiveUp, Reader.READS, STAY, noted(), None, "C-3"),
        Row(Answered, Reader.READS, STAY, noted(SetTimer("give_up", 10**6)), None, "C-3"),
        Row(Tick, Reader.READS, STAY, noted(), None, "C-4"),
    ),
    timers=(
        Timer("give_up", GiveUp, (Reader.READS,), lambda record: 100, once=True),
        Timer("poll", Poll, (Reader.READS,), lambda record: 0, on_entry=False),
        Timer("end", ContinuationsEnd, (Reader.READS,), authority=True),
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
    assert one.feed(Tick(), 50) == ["ContinuationsEnd", "Poll", "Tick"]


def test_a_turn_fires_what_ends_a_right_what_goes_on_and_what_has_patience(one):
    one.feed(Go(400, end_ns=450), 400)
    assert one.fire(500) == ["ContinuationsEnd", "Poll", "GiveUp"]


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


class S(kernel.Status):
    A = "a"
    B = "b"
    C = "c"
    D = "d"


class Red(kernel.Call, frozen=True):
    n: int


class Green(kernel.Call, frozen=True):
    n: int


class Blue(kernel.Call, frozen=True):
    n: int


class DispatchTick(kernel.TimerFired, frozen=True):
    n: int = 0


EVENTS = (Red, Green, Blue, DispatchTick)


class Rec(msgspec.Struct, frozen=True):
    status: S = S.A
    total: int = 0


def action(k):
    return lambda record, event, now_ns: (
        replace(record, total=record.total * 3 + k + event.n),
        (kernel.Tell(Red(record.total)), kernel.Tell(Green(now_ns))),
    )


def guard(k):
    return lambda record, event: (record.total + event.n) % 4 >= k


sources = st.one_of(
    st.sampled_from(S),
    st.just(kernel.ANY),
    st.lists(st.sampled_from(S), min_size=1, max_size=3, unique=True).map(tuple),
)
rows = st.builds(
    kernel.Row,
    st.sampled_from(EVENTS),
    sources,
    st.one_of(st.sampled_from(S), st.just(kernel.STAY)),
    st.one_of(st.none(), st.integers(0, 3).map(action)),
    st.one_of(st.none(), st.integers(0, 4).map(guard)),
    st.just("T-1"),
)
closing = st.builds(
    lambda kind, events: kind(events, tuple(S), "T-2"),
    st.sampled_from([kernel.Ignore, kernel.Refuse]),
    st.lists(st.sampled_from(EVENTS), min_size=1, unique=True).map(tuple),
)
timers = st.lists(st.sampled_from(S), unique=True).map(
    lambda states: (kernel.Timer("tick", DispatchTick, tuple(states), lambda r: 9, once=True),)
)


@st.composite
def machines(draw):
    """Random rows, with random ignores and refusals between them, and every cell decided at the end."""
    table = draw(st.lists(st.one_of(rows, rows, closing), max_size=14))
    table.append(
        kernel.Ignore(EVENTS, tuple(S), "T-3") if draw(st.booleans()) else kernel.Refuse(EVENTS, tuple(S), "T-3")
    )
    return kernel.Fsm("random", record=Rec, states=S, initial=S.A, rows=reachable(table), timers=draw(timers))


def reachable(table):
    """Without what stands behind a line that has no guard: a declaration with such a line is refused."""
    closed, kept = set(), []
    for line in table:
        sources = (
            tuple(S) if line.source is kernel.ANY else line.source if isinstance(line.source, tuple) else (line.source,)
        )
        for event in line.on if isinstance(line, kernel.Ignore) else (line.on,):
            open_ = tuple(state for state in sources if (state, event) not in closed)
            if not open_:
                continue
            if isinstance(line, kernel.Ignore):
                kept.append(type(line)((event,), open_, line.clause))
            else:
                kept.append(kernel.Row(event, open_, line.to, line.do, line.when, line.clause))
            if isinstance(line, kernel.Ignore) or line.when is None:
                closed |= {(state, event) for state in open_}
    return tuple(kept)


events = st.lists(st.builds(lambda kind, n: kind(n=n), st.sampled_from(EVENTS), st.integers(0, 9)), max_size=25)


def outcome(engine, record, event, now_ns):
    try:
        return engine(record, event, now_ns)
    except kernel.GaplessError as error:
        return (type(error), str(error))


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(machines(), events)
def test_both_engines_agree(fsm, feed):
    record = Rec()
    for now_ns, event in enumerate(feed):
        ours = outcome(fsm.step, record, event, now_ns)
        assert ours == outcome(fsm.reference_step, record, event, now_ns)
        assert outcome(fsm.child_step, record, event, now_ns) == outcome(
            fsm.reference_child_step, record, event, now_ns
        )
        if not isinstance(ours, tuple):
            record = ours.record


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(machines(), events, st.integers(0, 2**62))
def test_shifting_all_times_changes_no_row(fsm, feed, shift):
    def run(start):
        record, taken = Rec(), []
        for now_ns, event in enumerate(feed, start):
            step = outcome(fsm.step, record, event, now_ns)
            taken.append(step[0] if isinstance(step, tuple) else step.row)
            record = record if isinstance(step, tuple) else step.record
        return taken

    assert run(0) == run(shift)
