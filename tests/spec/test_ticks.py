"""Timed systems: time passes in ticks, deadlines come nearer, and what was assumed of them is found out.

SPIN, on Promela generated from the entries, counts the states and transitions that the walkers count.

Runs of the explorer as ITF, traces followed in a system or judged by a table, and state graphs.
"""

from __future__ import annotations

import json
from enum import Enum

import msgspec
import pytest
from lock_toy import HOLDER, HOLDING, LAGS, SECOND, TICK, Granted, HolderRecord, lock_system, timed_lock, with_period
from msgspec.structs import replace
from symmetric_system import Count, backwards, never_takes, quiet_before_note, toy
from tank_protocol import OVER, TWO_TIMERS, End, One, TwoRecord

from statemachines import cli
from statemachines.kernel import (
    STAY,
    Call,
    ConfigurationError,
    Event,
    Fsm,
    GaplessError,
    Ignore,
    Message,
    Row,
    Send,
    SetTimer,
    Status,
    Timer,
    TimerFired,
)
from statemachines.trace.itf import ItfTrace, make_canonical, read_itf
from statemachines_spec import (
    Clock,
    Drift,
    FsmActor,
    Network,
    Pause,
    Stamp,
    System,
    TickClock,
    Timing,
    at_most,
    drift_of,
    replay,
)
from statemachines_spec import state_graph as state_graphs
from statemachines_spec.explorer import promela
from statemachines_spec.explorer.actor import Envelope, Passed, Wake
from statemachines_spec.explorer.explore import explore, follow
from statemachines_spec.explorer.party import list_due
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.service_actor import search
from statemachines_spec.explorer.shift import TellsTime
from statemachines_spec.itf import matching
from statemachines_spec.itf.export import export_run
from statemachines_spec.itf.machine_rows import judge_rows
from statemachines_spec.itf.matching import match_run
from statemachines_spec.state_graph import state_graph

CERTAIN = Network(1, lossy=False, duplicating=False)


def both(system):
    """What both engines come to, in everything that is counted."""
    plain, compiled = (explore(system, engine=engine) for engine in ("plain", "compiled"))
    for field in ("ended", "states", "transitions", "cuts", "terminal", "levels", "edges", "entries", "locals"):
        assert getattr(plain, field) == getattr(compiled, field), field
    assert (plain.path and plain.path.script) == (compiled.path and compiled.path.script)
    return plain


# -- counted by hand ------------------------------------------------------------------------------------------------


class Beat(TimerFired, frozen=True):
    pass


class Ask(Call, frozen=True):
    pass


class Told(Message, frozen=True):
    at_ns: int


class On(Status):
    ON = "on"


(ON,) = On


class HeartRecord(msgspec.Struct, frozen=True):
    status: On = ON
    asked_ns: int = 0
    asked: bool = False


def beat_again(record, event, now_ns):
    """Three ticks after the question, if there was one, else after this beat."""
    since_ns = record.asked_ns if record.asked else now_ns
    return replace(record, asked=False), (SetTimer("beat", since_ns + 3),)


def note_question(record, event, now_ns):
    return replace(record, asked=True, asked_ns=now_ns), ()


def heart(ask=note_question, beat=beat_again, period=3):
    return Fsm(
        "heart",
        protocol="heart_made_up",
        record=HeartRecord,
        states=On,
        initial=ON,
        rows=(Row(Beat, ON, STAY, beat, None, "H-1"), Row(Ask, ON, STAY, ask, None, "H-2")),
        timers=(Timer("beat", Beat, (ON,), lambda record: period),),
    )


def asked_over(record, live, dead):
    return replace(record, asked_ns=(live if record.asked else dead)(record.asked_ns))


ASKED = Stamp("asked_ns", 3, asked_over)


def hearts(fsm=None, *, asks=False, stamps=(ASKED,), drift=None, late=None, route=None, faults=()):
    timing = Timing(1, ("beat",), stamps if asks else (), late or {})
    calls = (lambda record: () if record.asked else (Ask(),)) if asks else None
    one = FsmActor(
        "heart", fsm or heart(), HeartRecord(), timing=timing, calls=calls, route=route or str, faults=faults
    )
    return System(
        "hearts", "a timer that is set again whenever it fires", (one, TickClock(1, drift={"heart": drift})), CERTAIN,
        budgets=(at_most("pauses", 1, Pause),),
    )  # fmt: skip


def test_a_timer_of_three_ticks_has_four_states_by_hand():
    # 3, 2, 1, 0 ticks left; three ticks and the firing, which leads back; while it is due no tick happens
    result = both(hearts())
    assert (result.states, result.transitions, result.levels) == (4, 4, (1, 1, 1, 1))


def test_a_timer_that_may_be_late_has_a_state_for_each_tick_by_hand():
    # 3, 2, 1, 0, -1, -2; it may fire in the last three: five ticks and three firings
    result = both(hearts(late={"beat": 2}))
    assert (result.states, result.transitions) == (6, 8)


def test_a_clock_that_may_fall_behind_by_hand():
    # In any 2 ticks one fewer: after a tick that was lost the next one is not.  {3, 2, 1} x {lost, kept}; due, kept.
    # From {3, 2, 1}: kept or lost where the last one was kept (6), kept where it was lost (3); and the firing (1).
    result = both(hearts(drift=Drift(2, 1, fast=False)))
    assert (result.states, result.transitions) == (7, 10)


def test_gains_of_one_sign_that_lie_a_window_apart_are_allowed():
    clock = TickClock(1, drift={"heart": Drift(3, 1)})
    local = clock.initial()
    for gain in ("fast", "", "", "fast"):
        tick = next(one for one in clock.inputs(local) if bool(one.fast) == bool(gain) and not one.slow)
        local = clock.react(local, Envelope("", "clock", tick)).local
    assert not any(one.fast for one in clock.inputs(local))
    assert any(one.slow for one in clock.inputs(local))


# -- stamps ---------------------------------------------------------------------------------------------------------


def test_a_stamp_grows_old_and_then_no_older():
    result = both(hearts(asks=True))
    locals_ = Entries(hearts(asks=True))
    explore(locals_.system, engine="plain", entries=locals_)
    ages = {one.party.record.asked_ns for one in locals_.components[0].locals[1:]}
    assert ages == {0, -1, -2, -3}
    assert result.is_held


@pytest.mark.parametrize(
    ("stamps", "word"),
    [
        ((), "a field holds a time and is no stamp"),
        ((Stamp("asked_ns", 1, asked_over),), "a larger constant is added to a stamp than it says"),
        ((Stamp("asked_ns", 3, lambda record, live, dead: replace(record, asked_ns=dead(record.asked_ns))),), "dead"),
    ],
)
def test_a_wrong_stamp_is_named(stamps, word):
    with pytest.raises(TellsTime, match=word) as found:
        explore(hearts(asks=True, stamps=stamps), engine="plain")
    assert "heart: " in str(found.value)


def test_a_stamp_is_as_old_as_it_says_to_the_tick():
    """With a constant of 3 ticks an age of 2 at most would not do: the deadline that it gives is not over yet."""
    with pytest.raises(TellsTime):
        explore(hearts(asks=True, stamps=(Stamp("asked_ns", 2, asked_over),)), engine="plain")


def test_a_message_that_carries_a_time_is_refused():
    def tell_time(record, event, now_ns):
        return record, (Send("heart", Told(now_ns)),)

    with pytest.raises(TellsTime, match="a message carries a time"):
        explore(hearts(heart(ask=tell_time), asks=True), engine="plain")


def test_who_tells_its_time_from_nothing_else_is_not_suspected():
    assert explore(hearts(asks=True), engine="plain").ended == "complete"


# -- what is due ----------------------------------------------------------------------------------------------------


def actor(**given):
    given = {"timing": Timing(TICK, ("lease",)), "faults": (Pause,)} | given
    return FsmActor("holder-1", HOLDER, HolderRecord("holder-1", HOLDING), **given)


def after(one, local, *events):
    for event in events:
        local = one.react(local, Envelope("", "holder-1", event)).local
    return local


def test_a_due_timer_fires_before_anything_else():
    one = actor(calls=lambda record: (Call(),))
    due = after(one, one.initial(), *[Passed(1)] * 4)
    assert [type(event).__name__ for event in one.inputs(due)] == ["LeaseEnd", "Pause"]
    assert one.react(due, Envelope("lock", "holder-1", Told(0))) is None
    assert one.react(due, Envelope("clock", "holder-1", Passed(1))) is None
    assert one.react(due, Envelope("clock", "holder-1", Passed(0))) is None


def test_a_clock_that_runs_fast_makes_a_timer_due_and_no_later_than_that():
    one = actor()
    due = after(one, one.initial(), Passed(1), Passed(1), Passed(1), Passed(2))
    assert due == after(one, one.initial(), *[Passed(1)] * 4)


def test_time_passes_a_process_that_stands_still_and_what_was_due_fires_when_it_goes_on():
    one = actor()
    standing = after(one, one.initial(), Pause(), *[Passed(1)] * 9)
    assert standing == after(one, one.initial(), Pause(), *[Passed(1)] * 4), "how long ago does not matter"
    awake = after(one, standing, Wake())
    assert awake.party.record.status.value == "idle"


def test_of_deadlines_that_passed_in_a_pause_the_earlier_one_comes_first():
    slower = with_period(TWO_TIMERS, "one", 5)
    made = FsmActor("node", slower, TwoRecord(), faults=(Pause,), timing=Timing(1, ("one", "two")))
    standing = after(made, made.initial(), Pause(), *[Passed(1)] * 9)
    assert list_due(standing.party) == [("two", ""), ("one", "")]
    assert standing.party.left == (0, -1), "one after the other is all that is left of it"


def two(**given):
    given = {"timing": Timing(1, ("one", "two")), "calls": lambda record: (End(),)} | given
    return FsmActor("holder-1", given.pop("fsm", TWO_TIMERS), TwoRecord(), **given)


def test_a_due_timer_with_patience_lets_events_go_first_and_no_tick():
    made = two()
    due = after(made, made.initial(), Passed(2))
    assert [type(event).__name__ for event in made.inputs(due)] == ["One", "End"], "the other one fires after it"
    assert made.react(due, Envelope("", "holder-1", End())) is not None
    assert made.react(due, Envelope("clock", "holder-1", Passed(1))) is None


def test_a_timer_that_is_set_for_now_goes_on_before_any_event():
    made = two(fsm=with_period(TWO_TIMERS, "one", 0))
    first = made.initial()
    assert [type(event).__name__ for event in made.inputs(first)] == ["One"]
    assert made.react(first, Envelope("", "holder-1", End())) is None
    assert made.react(first, Envelope("clock", "holder-1", Passed(1))) is None


def ask_now(record, event, now_ns):
    return record, (SetTimer("one", now_ns),)


def note(record, event, now_ns):
    return replace(record, fired="1"), ()


def test_a_timer_that_an_event_sets_for_now_goes_on_in_the_same_step():
    on = TWO_TIMERS.initial
    at_once = Fsm(
        "at-once",
        record=TwoRecord,
        states=type(on),
        initial=on,
        rows=(Row(End, on, STAY, ask_now, None, "T-1"), Row(One, on, STAY, note, None, "T-2")),
        final=(OVER,),
        timers=(Timer("one", One, (on,), lambda record: 9, on_entry=False),),
    )
    made = two(fsm=at_once, timing=Timing(1, ("one",)))
    local = after(made, made.initial(), End())
    assert (local.party.record.fired, local.party.timers) == ("1", ())


def test_who_may_be_late_lets_others_go_first():
    one = actor(timing=Timing(TICK, ("lease",), late={"lease": 1}))
    due = after(one, one.initial(), *[Passed(1)] * 4)
    assert one.react(due, Envelope("lock", "holder-1", Granted(1, 1))) is not None
    assert after(one, due, Passed(1)) != due
    assert one.react(after(one, due, Passed(1)), Envelope("clock", "holder-1", Passed(1))) is None


# -- the lock -------------------------------------------------------------------------------------------------------

LOCKS = {
    "the clocks agree": ({"expiry": 8}, ""),
    "a lease that is a tick longer than the lock is held": ({"expiry": 6}, "one holder"),
    "a holder lags, and the server waits longer": ({"drift": LAGS}, ""),
    "a holder lags, and the server waits a tick less": ({"expiry": 8, "drift": LAGS}, "one holder"),
}


@pytest.mark.parametrize("kind", LOCKS)
def test_a_lease_ends_before_the_lock_expires_and_not_if_that_is_a_tick_shorter(kind):
    given, broken = LOCKS[kind]
    system = timed_lock(**given)
    result = explore(system, engine="plain")
    assert ("" if result.path is None else result.path.broken) == broken
    assert result.is_shown
    if broken:
        assert replay(system, result.path).broken == broken
        assert follow(system, result.path.script).last == result.path.last


@pytest.mark.long
def test_both_walkers_and_a_naive_search_count_the_same():
    system = timed_lock(drift=LAGS, pauses=0)
    result, counts = both(system), search(system, 100_000)
    assert (result.states, result.transitions) == (counts.states, counts.transitions)


@pytest.mark.long
def test_spin_counts_the_same(tmp_path):
    entries = Entries(timed_lock(pauses=0))
    result = explore(entries.system, engine="plain", entries=entries)
    counts = promela.judge(entries, tmp_path)
    assert (counts.states, counts.transitions) == (result.states, result.transitions)


def test_what_bounds_it_is_printed():
    lines = timed_lock(drift=LAGS, late={"lease": 1}).describe_bounds()
    assert lines["clock: tick"] == f"{TICK} ns"
    assert lines["clock: drift of holder-1"] == "in any 5 ticks at most 1 fewer"
    assert lines["lock: timed"] == "expiry"
    assert lines["holder-1: timed"] == "lease (late by 1 ticks at most)"
    assert hearts(asks=True).describe_bounds()["heart: stamps"] == "asked_ns (up to 3 ns, 3 ticks)"


# -- what is refused ------------------------------------------------------------------------------------------------


def with_clock(*clocks):
    one = timed_lock(clock=False)
    return replace(one, actors=(*one.actors, *clocks))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: with_clock(TickClock(TICK), Clock(0, 5, name="hand")), "hand, clock.*instants or a tick, never both"),
        (lambda: with_clock(), "add a TickClock"),
        (lambda: with_clock(TickClock(TICK), TickClock(TICK, name="other")), "one tick"),
        (lambda: with_clock(TickClock(SECOND)), f"{TICK}.*must be the tick of clock, {SECOND} ns"),
        (lambda: with_clock(TickClock(TICK, drift={"nobody": LAGS})), "no timed component; there are: lock, holder-1"),
        (lambda: System("x", "", (TickClock(1),), CERTAIN), "nothing is timed"),
        (lambda: with_clock(TickClock(TICK, drift={"lock": Drift(2, 2)})), "1 <= most < window"),
        (lambda: actor(timing=Timing(TICK, ("leese",))), "leese.*there are: lease"),
        (lambda: actor(silent=("lease",)), "either timed or silent"),
        (lambda: actor(late=True), "either late or timed"),
        (lambda: actor(timing=Timing(TICK, ("lease",), late={"lese": 1})), "lese: 1.*must be a timed timer"),
        (lambda: actor(timing=Timing(0, ("lease",))), "1 nanosecond at least"),
        (lambda: drift_of(0.01), "denominator up to 16"),
    ],
)
def test_what_cannot_be_timed_is_refused_with_what_to_do(wrong, words):
    with pytest.raises(ConfigurationError, match=words):
        wrong().check()


def test_a_drift_is_read_from_the_bound_of_a_configuration():
    assert drift_of(0.25) == Drift(4, 1)
    assert drift_of(0.4) == Drift(5, 2)
    assert drift_of(0) is None


SYSTEMS = {
    "declared machines": lambda: lock_system(asks=1, crashes=1),
    "ordered": lambda: toy({"in_flight": 3, "ordered": True}, last=3, each=2),
    "orders and budgets": lambda: toy({"in_flight": 2}, last=3, hushes=1, orders=(quiet_before_note(),)),
    "an observer": lambda: toy({"in_flight": 3, "duplicating": False}, last=3, observed=True),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_spin_counts_spin_counts_the_same(name, tmp_path):
    entries = Entries(SYSTEMS[name]())
    result = explore(entries.system, engine="plain", entries=entries)
    counts = promela.judge(entries, tmp_path)
    assert (counts.states, counts.transitions) == (result.states, result.transitions)


def test_entries_that_are_not_complete_are_noticed(tmp_path):
    entries = Entries(toy({"in_flight": 2}, properties=(backwards(),), observed=True))
    with pytest.raises(GaplessError, match="no entry for event"):
        promela.judge(entries, tmp_path)


def test_a_tool_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    entries = Entries(toy({"in_flight": 1}))
    with pytest.raises(GaplessError, match="spin is not installed"):
        promela.judge(entries, tmp_path)


SYSTEM = toy({"in_flight": 2}, properties=(never_takes(20),))


def trace_of(*states, loop=None):
    return ItfTrace(
        tuple(states[0]), tuple({name: make_canonical(one) for name, one in state.items()} for state in states), loop
    )


@pytest.fixture
def exported(tmp_path):
    result = explore(SYSTEM, engine="plain")
    export_run(tmp_path / "run.itf.json", SYSTEM, result.path)
    return read_itf(tmp_path / "run.itf.json")


def test_a_counterexample_that_was_written_is_a_run_of_the_system(exported):
    assert exported.vars == ("talker", "listener", "network")
    assert exported.states[0]["talker"] == {"n": {"#bigint": "0"}, "took": {"#bigint": "0"}}
    match = match_run(SYSTEM, exported)
    assert (match.steps, match.of, match.why) == (len(exported.states), len(exported.states), "")
    assert len(match.run.legs) == len(exported.states) - 1
    assert match.run.broken == "never 20"


def test_the_first_state_that_is_impossible_is_named_with_what_is_possible(exported):
    states = [dict(one) for one in exported.states]
    states[1]["talker"] = {"n": {"#bigint": "7"}, "took": {"#bigint": "0"}}
    match = match_run(SYSTEM, ItfTrace(exported.vars, tuple(states)))
    assert (match.steps, match.run) == (1, None)
    assert 'talker.n is {"#bigint":"1"}, not {"#bigint":"7"}' in match.why


def test_a_trace_may_say_less_and_stand_still():
    match = match_run(SYSTEM, trace_of({"n": 0}, {"n": 1}, {"n": 1}, {"n": 2}), {"n": "talker.n"})
    assert match.run is not None
    assert len(match.run.legs) == 2


def test_two_transitions_between_states_are_no_run():
    match = match_run(SYSTEM, trace_of({"n": 0}, {"n": 2}), {"n": "talker.n"})
    assert (match.steps, match.of) == (1, 2)


def test_a_map_by_component_stands_at_a_field_of_each():
    states = ({"took": {"#map": [["talker", 0], ["listener", n]]}} for n in (0, 0, 1))
    assert match_run(SYSTEM, trace_of(*states), {"took": "*.took"}).run is not None


def test_values_that_are_possible_by_themselves_and_not_together():
    match = match_run(
        SYSTEM, trace_of({"n": 0, "m": 0}, {"n": 1, "m": 0}, {"n": 2, "m": 10}), {"n": "talker.n", "m": "listener.n"}
    )
    assert match.why == "no single transition leads there, though each value by itself is possible"


def test_a_loop_must_lead_back():
    places = {"n": "talker.n"}
    assert match_run(SYSTEM, trace_of({"n": 0}, {"n": 1}, loop=1), places).run is not None
    assert match_run(SYSTEM, trace_of({"n": 0}, {"n": 1}, loop=0), places).steps == 2


def test_more_states_than_are_carried_along_are_not_judged(monkeypatch):
    monkeypatch.setattr(matching, "STATES_MAX", 3)
    match = match_run(SYSTEM, trace_of(*({"x": 0} for _ in range(9))), {"x": "talker.took"})
    assert match.bounded
    assert match.run is None


@pytest.mark.parametrize(
    ("places", "ignored", "wrong"),
    [
        ({}, (), "'n': is no component; there are: talker, listener, network"),
        ({"n": "*"}, (), "is no component"),
        ({"n": "*.n"}, (), "is no map by component in state 0"),
        ({"n": "talker.n", "m": "talker"}, (), "'m': is not in the trace; it has: n"),
        ({"n": "talker.n"}, ("k",), "'k': is not in the trace"),
    ],
)
def test_a_variable_that_stands_nowhere_is_refused(places, ignored, wrong):
    with pytest.raises(ConfigurationError) as raised:
        match_run(SYSTEM, trace_of({"n": 0}), places, ignored)
    assert wrong in str(raised.value)


def test_a_field_that_is_not_there_is_said():
    assert match_run(SYSTEM, trace_of({"n": 0}), {"n": "talker.size"}).why == "talker.size is not there"


class Door(Enum):
    OPEN = "open"
    SHUT = "shut"


class Push(Event, frozen=True):
    pass


class Pull(Event, frozen=True):
    pass


DOOR = Fsm(
    "door",
    protocol="doors",
    record=type("DoorRecord", (Count,), {"__annotations__": {"status": Door}, "status": Door.OPEN}, frozen=True),
    states=Door,
    initial=Door.OPEN,
    rows=(
        Row(Push, Door.OPEN, Door.SHUT, None, None, "DO-01"),
        Row(Push, Door.SHUT, STAY, None, None, "DO-02"),
        Ignore((Pull,), tuple(Door), "DO-03"),
    ),
)


def test_steps_are_rows_of_the_table():
    verdict = judge_rows(DOOR, trace_of({"d": "open"}, {"d": "shut"}, {"d": "shut"}))
    assert (verdict.steps, verdict.rows, verdict.wrong) == (1, (0,), "")


def test_an_event_that_is_named_must_be_that_of_the_row():
    states = (
        {"d": "open", "e": "init"},
        {"d": "open", "e": "pull"},
        {"d": "shut", "e": "push"},
        {"d": "shut", "e": "push"},
    )
    assert judge_rows(DOOR, trace_of(*states), "d", "e").rows == (0, 1, 2)
    wrong = judge_rows(DOOR, trace_of(states[0], {"d": "shut", "e": "pull"}), "d", "e").wrong
    assert wrong == "state 1: open -> shut by pull: no row of the table; from open there are: push -> shut [DO-01]"


def test_a_step_that_is_no_row_is_named_by_its_instance():
    verdict = judge_rows(DOOR, trace_of({"d": {"front": "open"}}, {"d": {"front": "shut"}}, {"d": {"front": "open"}}))
    assert verdict.wrong.startswith(
        "state 2 of front: shut -> open: no row of the table; from shut there are: push -> shut"
    )


def test_the_machine_may_be_made_by_a_factory_of_transitions(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend("examples")
    path = tmp_path / "order.itf.json"
    for states, code in ((("new", "paying", "shipped"), 0), (("new", "shipped"), 1)):
        path.write_text(json.dumps({"vars": ["s"], "states": [{"s": state} for state in states]}))
        assert cli.run(["itf", str(path), "shop:make_order", "--state", "s"]) == code, capsys.readouterr()


def test_a_trace_begins_where_the_machine_begins():
    assert judge_rows(DOOR, trace_of({"d": "shut"})).wrong == "state 0: shut, and the machine begins in open"


@pytest.mark.parametrize(
    ("state", "names", "wrong"),
    [
        ({"d": "ajar"}, ("",), "0 variables have states of the machine alone; there are: d"),
        ({"d": "open", "e": "open"}, ("",), "2 variables have states of the machine alone; there are: d, e"),
        ({"d": "ajar"}, ("d",), "'ajar': is no state of the machine; there are: open, shut"),
        ({"d": 3}, ("d",), "is neither text nor a map of texts"),
        ({"d": "open"}, ("x",), "'x': is not in the trace; it has: d"),
        ({"d": "open"}, ("d", "d"), "names no event of the machine in any state; there are: pull, push"),
    ],
)
def test_a_variable_without_states_of_the_machine_is_refused(state, names, wrong):
    with pytest.raises(ConfigurationError) as raised:
        judge_rows(DOOR, trace_of(state), *names)
    assert wrong in str(raised.value)


def test_the_graph_of_a_system_has_its_states_and_transitions():
    system = toy({"in_flight": 2})
    graph, result = state_graph(system), explore(system, engine="plain")
    assert (len(graph), graph.number_of_edges()) == (result.states, result.transitions)
    assert max(depth for _, depth in graph.nodes(data="depth")) == len(result.levels) - 1


def test_a_graph_of_too_many_states_is_refused(monkeypatch):
    monkeypatch.setattr(state_graphs, "STATES_MAX", 50)
    with pytest.raises(ConfigurationError, match="has more than 50 states; a smaller size of it"):
        state_graph(toy({"in_flight": 4}, last=60))
