"""Declared machines as components without glue: what they can do, against the same system written by hand."""

import msgspec
import pytest
from lock_toy import (
    HELD,
    HOLDER,
    HOLDING,
    IDLE,
    Granted,
    HolderRecord,
    LeaseEnd,
    Store,
    TokenStore,
    Want,
    Written,
    Wrote,
    lock_by_hand,
    lock_system,
    wrote_system,
)
from msgspec.structs import replace
from symmetric_system import toy
from tank_protocol import OVER, STAMPER, TWO_TIMERS, End, Stamp, StampRecord, Two, TwoRecord

from statemachines.kernel import ConfigurationError, Fsm, GaplessError, Ignore, Timer
from statemachines_spec import (
    Always,
    Clock,
    Crash,
    FsmActor,
    Network,
    Pause,
    Reaction,
    ServiceActor,
    Sometimes,
    System,
    View,
    explore,
    replay,
)
from statemachines_spec.coverage import machines_in
from statemachines_spec.explorer import counterexample
from statemachines_spec.explorer.actor import Envelope, Hear, Restart, Wake
from statemachines_spec.explorer.fsm_actor import DOWN, ENDED, HEARING, RUNNING, Pass
from statemachines_spec.explorer.service_actor import search
from statemachines_spec.protocol import system_at

PLAIN = {"engine": "plain", "hashing": False}

KINDS = {
    "a pause": {"asks": 1},
    "a pause and a crash": {"asks": 1, "crashes": 1},
    "a crash without a disk": {"asks": 1, "crashes": 1, "disk": False, "pauses": 0},
    "a store that is reached by messages": {"asks": 1, "crashes": 1, "pauses": 0, "remote": True},
    "a store that ignores tokens": {"asks": 1, "honours": False, "remote": True},
    "no deadline order": {"asks": 1, "order": False},
}


def outcome(system):
    result = explore(system, **PLAIN)
    broken = [name for name, held in result.always.items() if not held]
    return result.ended, result.states, result.transitions, result.cuts, result.levels, broken


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_what_the_same_system_written_by_hand_does(kind):
    assert outcome(lock_system(**KINDS[kind])) == outcome(lock_by_hand(**KINDS[kind]))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["a pause", "a crash without a disk"])
def test_it_does_what_a_naive_search_finds(kind):
    system = lock_system(**KINDS[kind])
    result, counts = explore(system, **PLAIN), search(system, 100_000)
    broken = "" if result.path is None else result.path.broken
    assert (counts.states, counts.depth, counts.broken) == (result.states, len(result.levels) - 1, broken)


@pytest.mark.long
def test_the_compiled_walker_counts_the_same():
    plain, compiled = (explore(lock_system(asks=1, crashes=1), engine=engine) for engine in ("plain", "compiled"))
    assert (plain.states, plain.transitions, plain.levels, plain.edges, plain.sometimes) == (
        compiled.states, compiled.transitions, compiled.levels, compiled.edges, compiled.sometimes,
    )  # fmt: skip


# -- counterexamples ------------------------------------------------------------------------------------------------


def test_a_counterexample_is_a_test_to_paste():
    system = system_at("lock_toy:lock_system", honours=False, remote=True, asks=1)
    path = explore(system, **PLAIN).path
    source = counterexample.pytest_function(system, path)
    assert "from lock_toy import lock_system" in source
    names = {}
    exec(source, names)
    names["test_lock_fenced"]()


@pytest.mark.long
def test_entries_are_made_again_in_another_process():
    assert explore(system_at("lock_toy:lock_system", asks=1, crashes=1), **PLAIN).rechecked > 100


def test_a_node_that_comes_to_another_record_is_no_replay():
    system = lock_system(**KINDS["no deadline order"])
    path = explore(system, **PLAIN).path
    turn = path.legs[-1].turns[0]
    step = replace(turn.steps[0], after=replace(turn.steps[0].after, token=9))
    leg = replace(path.legs[-1], turns=(replace(turn, steps=(step,)),))
    with pytest.raises(GaplessError, match="came to"):
        replay(system, replace(path, legs=(*path.legs[:-1], leg)))


# -- one component --------------------------------------------------------------------------------------------------


def holder(**more):
    return FsmActor("holder-1", HOLDER, HolderRecord("holder-1"), **more)


def took(actor, local, *events, sender=""):
    """The local state after these events."""
    for event in events:
        reaction = actor.react(local, Envelope(sender, "holder-1", event))
        local = reaction.local
    return local


def held(actor):
    return took(actor, actor.initial(), Want(), Granted(1, 5))


def test_a_process_that_wakes_may_hear_what_waited_before_its_timers_fire():
    two = FsmActor("a", TWO_TIMERS, TwoRecord(), faults=(Pause,), calls=lambda record: (End(),))
    late = after(two, Pause(), Pass("one", ""), Pass("two", ""))
    assert [type(event) for event in two.inputs(late)] == [Wake, Hear]
    hearing = after(two, Pause(), Pass("one", ""), Pass("two", ""), Hear())
    assert (hearing.mode, hearing.passed, hearing.party.record.fired) == (HEARING, (("one", ""), ("two", "")), "")
    assert two.inputs(hearing) == (Wake(), End()), "no timer fires by itself, and it does not stand still again"
    assert after(two, Wake(), local=hearing) == after(two, Wake(), local=late)
    assert after(two, End(), local=hearing).mode is ENDED


def test_what_it_hears_may_take_back_or_set_anew_what_was_due():
    two = FsmActor("a", TWO_TIMERS, TwoRecord(), faults=(Pause,))
    heard = after(two, Pause(), Pass("one", ""), Pass("two", ""), Hear(), Two(""))
    assert (heard.mode, heard.passed, heard.party.record.fired) == (RUNNING, (), "2")
    assert heard.party.timers == (("two", ""),)


def after(actor, *events, local=None):
    local = actor.initial() if local is None else local
    for event in events:
        local = actor.react(local, Envelope("", actor.name, event)).local
    return local


def test_of_what_passed_in_a_pause_a_right_ends_first_whichever_way_it_wakes():
    ends = Fsm(
        "ends",
        record=TwoRecord,
        states=type(TWO_TIMERS.initial),
        initial=TWO_TIMERS.initial,
        rows=TWO_TIMERS.declared,
        final=(OVER,),
        timers=tuple(Timer(one.name, one.event, one.states, one.period_ns, once=True, authority=one.name == "two")
                     for one in TWO_TIMERS.timers),
    )  # fmt: skip
    two = FsmActor("a", ends, TwoRecord(), faults=(Pause,))
    late = after(two, Pause(), Pass("one", ""), Pass("two", ""))
    for wakes in (Wake(), Hear()):
        woken = after(two, wakes, local=late)
        assert (woken.party.record.fired, woken.mode) == ("2", RUNNING), "it takes the other one back"


def test_a_right_ends_before_anything_is_heard():
    actor = holder(faults=(Pause,), calls=lambda record: ())
    late = took(actor, held(actor), Pause(), Pass("lease", ""))
    assert actor.inputs(late) == (Wake(),), "nothing else is due: it hears what it likes afterwards"
    assert took(actor, late, Wake()) == took(actor, held(actor), LeaseEnd())


def test_an_answer_to_an_earlier_life_is_lost():
    actor = holder(lives=2, faults=(Crash,))
    again = took(actor, actor.initial(), Crash(), Restart(), Want())
    assert again.party.record.n == 1
    for to, token in (("holder-1~1", 0), ("holder-1~2", 5), ("holder-1", 5)):
        after = actor.react(again, Envelope("lock", to, Granted(1, 5))).local
        assert after.party.record.token == token


def test_what_a_life_asks_is_answered_to_that_life():
    actor = holder(lives=2, faults=(Crash,))
    again = took(actor, held(actor), Crash(), Restart(), Want(), Granted(1, 6))
    for local, asker in ((held(actor), "holder-1~1"), (again, "holder-1~2")):
        (call,) = actor.react(local, Envelope("", "holder-1", Store())).calls
        assert (call.sender, call.to) == (asker, "store")


def test_a_timer_that_is_set_anew_on_waking_is_not_due():
    actor = FsmActor("a", TWO_TIMERS, TwoRecord(fired="again"), faults=(Pause,))
    local = actor.initial()
    for event in (Pause(), Pass("two", ""), Pass("one", ""), Wake()):
        local = actor.react(local, Envelope("", "a", event)).local
    assert local.party.record.fired == "again2"
    assert local.party.timers == (("one", ""), ("two", "")), "one is set, for later"


def test_each_life_may_have_a_record_and_an_id_of_its_own():
    actor = FsmActor("b", TWO_TIMERS, lambda life: TwoRecord(id=f"b~{life}/1"), lives=2, faults=(Crash,))
    first = actor.initial()
    assert first.id == "b~1/1"
    down = actor.react(first, Envelope("", "b", Crash())).local
    assert actor.react(down, Envelope("", "b", Restart())).local.id == "b~2/1"


def test_a_life_may_begin_with_an_event():
    actor = holder(start=Want(), lives=2, faults=(Crash,))
    first = actor.initial()
    assert (first.mode, first.life, actor.inputs(first)) == (DOWN, 0, (Restart(),))
    reaction = actor.react(first, Envelope("", "holder-1", Restart()))
    assert (reaction.local.life, len(reaction.sends)) == (1, 1)


def test_a_machine_that_has_stopped_keeps_its_record_and_hears_nothing():
    actor = FsmActor("a", TWO_TIMERS, TwoRecord())
    after = actor.react(actor.initial(), Envelope("", "a", End())).local
    assert (after.mode, after.party.record.status, actor.inputs(after)) == (ENDED, OVER, ())
    assert actor.is_in(OVER).of(after) == 1
    assert actor.react(after, Envelope("x", "a", End())) == Reaction(after)


def test_timers_that_were_taken_back_may_fire_all_the_same():
    actor = holder(late=True)
    local = took(actor, held(actor), LeaseEnd(), Want())
    assert local.party.late == ()
    two = FsmActor("a", TWO_TIMERS, TwoRecord(), late=True)
    taken = two.react(two.initial(), Envelope("", "a", Two())).local
    assert taken.party.late == (("one", ""),)


def test_a_send_goes_where_the_route_says():
    actor = FsmActor("holder-1", HOLDER, HolderRecord("holder-1"), route=lambda to: (f"{to}-a", f"{to}-b"))
    sends = actor.react(actor.initial(), Envelope("", "holder-1", Want())).sends
    assert [one.to for one in sends] == ["lock-a", "lock-b"]
    with pytest.raises(ConfigurationError, match=f"{TELLS}; add a component of that name, or change the `route`"):
        explore(System("s", "", (replace_calls(actor),), Network(2)), **PLAIN)


TELLS = "holder-1 tells it, and no component is called 'lock-a'"


def test_a_service_that_is_not_in_the_system_is_refused():
    record = HolderRecord("holder-1", HOLDING)
    actor = FsmActor("holder-1", HOLDER, record, calls=lambda record: (Store(),))
    with pytest.raises(ConfigurationError) as refused:
        explore(System("s", "", (actor,), Network(2)), **PLAIN)
    assert str(refused.value) == (
        "store = Write(token=0): holder-1 asks it, and no component is called 'store'; add a ServiceActor of that name"
        " (there are: holder-1)"
    )


def test_an_ask_whose_answer_nobody_takes_is_found_at_once():
    rows = tuple(row for row in HOLDER.declared if Written not in (row.on if isinstance(row, Ignore) else (row.on,)))
    deaf = Fsm("holder", record=HolderRecord, states=type(IDLE), initial=IDLE, rows=rows, timers=HOLDER.timers)
    actor = FsmActor("holder-1", deaf, HolderRecord("holder-1", HOLDING), calls=lambda record: (Store(),))
    result = explore(System("s", "", (actor, ServiceActor(TokenStore())), Network(2)), **PLAIN)
    assert "answers what it asked; give the answer a row or an Ignore" in result.path.why


def test_a_machine_whose_record_has_no_one_encoding_is_refused():
    record = msgspec.defstruct("SeenRecord", [("seen", set[int] | None, None)], bases=(TwoRecord,), frozen=True)
    machine = Fsm(
        "two", record=record, states=TWO_TIMERS.states[0].__class__, initial=TWO_TIMERS.initial,
        rows=TWO_TIMERS.declared, final=TWO_TIMERS.final, timers=TWO_TIMERS.timers,
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"SeenRecord\.seen holds a set; make it a tuple in order or a Map"):
        explore(System("s", "", (FsmActor("a", machine, record()),), Network(2)), **PLAIN)


def replace_calls(actor):
    actor._calls = lambda record: (Want(),) if record.status is IDLE else ()
    return actor


def test_silent_timers_never_fire_and_the_bounds_say_so():
    actor = holder(silent=("lease",), faults=(Pause,), lives=3)
    assert actor.inputs(held(actor)) == (Pause(),)
    assert actor.inputs(took(actor, held(actor), Pause())) == (Wake(),)
    lines = System("s", "", (actor,), Network(1)).describe_bounds()
    assert lines["holder-1: timers that never fire"] == "lease"
    assert lines["holder-1: lives"] == "3"


def few(record):
    """Two attempts."""
    return record.n <= 2


def named_only(record):
    return record.n <= 2


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (few, "Two attempts."),
        (named_only, "named_only"),
        (lambda record: True, "a function without a name or docstring"),
    ],
)
def test_the_bound_of_a_component_stands_among_the_bounds(bound, said):
    """Of a machine and of a service alike."""
    system = System("s", "", (holder(bound=bound), ServiceActor(TokenStore(True), bound=bound)), Network(1))
    lines = system.describe_bounds()
    assert [value for key, value in lines.items() if key.endswith(": bound")] == [said, said]
    assert not [key for key in System("s", "", (holder(),), Network(1)).describe_bounds() if "bound" in key]


@pytest.mark.long
def test_what_is_cut_says_at_whose_bounds():
    cut = explore(lock_system(in_flight=3), **PLAIN)
    assert cut.cuts > 0
    assert set(cut.cut_by) == {"holder-1", "holder-2", "lock"}
    no_place = explore(toy({"in_flight": 1, "lossy": False, "duplicating": False}, last=60), states_max=50, **PLAIN)
    assert (no_place.cuts > 0, no_place.cut_by) == (True, {})


def test_a_machine_that_is_made_anew_for_each_component_is_one():
    again = Fsm(
        HOLDER.name, protocol=HOLDER.protocol, record=HOLDER.record_type, states=type(HOLDER.initial),
        initial=HOLDER.initial, rows=HOLDER.declared, timers=HOLDER.timers,
    )  # fmt: skip
    one, two = holder(), FsmActor("holder-2", again, HolderRecord("holder-2"))
    assert [found.full_name for found in machines_in((System("s", "", (one, two), Network(1)),))] == [HOLDER.full_name]


def test_what_is_told_is_a_call_of_the_component_that_is_named():
    result = explore(wrote_system(), **PLAIN)
    assert (result.ended, result.always, result.sometimes["wrote"] > 0) == (
        "complete", {"no-error": True, "few": True}, True,
    )  # fmt: skip
    unheard = explore(wrote_system(tells={}), **PLAIN)
    assert unheard.sometimes["wrote"] == 0
    broken = explore(wrote_system(highest=1), **PLAIN)
    assert broken.path.broken == "few"
    assert Wrote in {type(turn.envelope.event) for leg in broken.path.legs for turn in leg.turns}


# -- instants -------------------------------------------------------------------------------------------------------


def test_two_clocks_are_those_of_two_nodes():
    apart = (Clock(0, 5, of=("a",), name="clock-a"), Clock(0, 5, of=("b",), name="clock-b"))
    result = explore(stamped(*apart, names=("a", "b")), **PLAIN)
    one = explore(stamped(Clock(0, 5), names=("a", "b")), **PLAIN)
    assert result.sometimes["at odds"] > 0
    assert one.sometimes["at odds"] == 0


def test_a_replay_is_told_the_same_instants():
    early = Always("early", "", (View("a", 10, lambda local: local.party.record.at),), lambda at: at < 9)
    system = msgspec.structs.replace(stamped(Clock(0, 9)), properties=(early,))
    path = explore(system, **PLAIN).path
    assert path.broken == "early"
    assert replay(system, path).broken == "early"


@pytest.mark.parametrize("instants", [(), (0,), (1, 2), (0, 5, 5), tuple(range(17))])
def test_instants_that_are_none_are_refused(instants):
    with pytest.raises(ConfigurationError, match="instants of clock"):
        Clock(*instants)


def stamped(*clocks, names=("a",)):
    """Machines that stamp whenever they are called."""
    actors = [FsmActor(name, STAMPER, StampRecord(), calls=lambda record: (Stamp(),)) for name in names]
    views = tuple(one.view(lambda record: record.at, 10) for one in actors)
    now = tuple(View(one.name, 10, lambda local: local.now_ns) for one in actors)
    kept = View(names[0], 2, lambda local: int(local.party.record.at <= local.now_ns))
    return System(
        "stamped", "", (*actors, *clocks), Network(1),
        (
            Always("no clock goes back", "", (kept,), bool),
            Sometimes("stamped later", "", views, lambda *at: max(at) > 0),
            Sometimes("at odds", "", now, lambda *each: len(set(each)) > 1),
        ),
    )  # fmt: skip


def test_a_property_that_reads_a_component_through_two_views_is_refused():
    """Only the first would be looked up, and what does not hold would be said to hold."""
    made = lock_system()
    lock = made.actors[0]
    two = (lock.is_in(HELD), lock.view(lambda record: min(record.token, 1)))
    agree = Always("agree", "a lock that is held has a token", two, lambda held, token: held <= token)
    with pytest.raises(ConfigurationError, match=r"property 'agree' = 'lock': is read by several views"):
        msgspec.structs.replace(made, properties=(agree,)).check()
