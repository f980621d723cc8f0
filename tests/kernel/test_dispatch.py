"""Compiled dispatch and the `transitions` engine agree on random declarations."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines import kernel


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


class Tick(kernel.TimerFired, frozen=True):
    n: int = 0


EVENTS = (Red, Green, Blue, Tick)


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
    lambda states: (kernel.Timer("tick", Tick, tuple(states), lambda r: 9, once=True),)
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
