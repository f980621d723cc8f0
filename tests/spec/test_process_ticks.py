"""ProcessActor in time: one of a single machine is an `FsmActor` of it; ticks and deadlines hold across parties."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lock_toy import HOLDER, HOLDING, IDLE, LOCK, SECOND, Expiry, HolderRecord, LockRecord, TokenStore, calls
from msgspec.structs import replace
from single_process import make_single, party_of, with_id
from small_machines import TWO_TIMERS, End, TwoRecord
from test_ticks import CERTAIN, HeartRecord, heart, note_question
from timed_lock import LAGS, TICK, with_period

from statemachines.kernel import ConfigurationError, SetTimer
from statemachines.kernel.process import PROCESS
from statemachines_spec import (
    Always,
    Clock,
    Crash,
    Drift,
    FsmActor,
    Network,
    Pause,
    ServiceActor,
    Stamp,
    System,
    TickClock,
    Timing,
    at_most,
    deadline_order,
    explore,
)
from statemachines_spec.explorer.actor import At, Envelope, Passed, Wake
from statemachines_spec.explorer.party import PartyInput
from statemachines_spec.explorer.process_actor import ProcessActor
from statemachines_spec.explorer.shift import TellsTime

sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
from office import OFFICE, Check, OfficeRecord, ShiftEnd, Visit


def make_alone(name, fsm, record, **options):
    return FsmActor(name, fsm, with_id(record, f"{name}~1/1"), **options)


def hold_of(actor):
    """Whether a holder acts: awake, with a lease that is not due."""
    if isinstance(actor, FsmActor):
        return actor.is_in(HOLDING, awake=True, until="lease")
    return actor.view(lambda parts: party_of(parts).status is HOLDING, awake=True, until="lease")


def want(record):
    return calls(record) if record.status is IDLE else ()


def timed_locks(make, expiry=10, drift=None, late=None):
    lock = make("lock", with_period(LOCK, "expiry", expiry * SECOND), LockRecord(),
                bound=lambda record: record.token <= 2, timing=Timing(TICK, ("expiry",)))  # fmt: skip
    holders = [
        make(name, HOLDER, HolderRecord(name), calls=want, faults=(Pause,),
             timing=Timing(TICK, ("lease",), late=late or {}), bound=lambda record: record.n <= 1)
        for name in ("holder-1", "holder-2")
    ]  # fmt: skip
    alone = Always("one holder", "", tuple(map(hold_of, holders)), lambda *each: sum(each) <= 1)
    clock = TickClock(TICK, drift={"holder-1": drift})
    network = Network(1, lossy=False, duplicating=False)
    return System("locks", "", (lock, *holders, clock), network, (alone,), (at_most("pauses", 1, Pause),))


def hearts(make, **given):
    one = make("heart", heart(ask=note_question), HeartRecord(), timing=Timing(1, ("beat",), (), given.pop("late", {})))
    return System("hearts", "", (one, TickClock(1, drift={"heart": given.get("drift")})), CERTAIN)


def untimed_locks(make, late=False):
    lock = make("lock", LOCK, LockRecord(), bound=lambda record: record.token <= 2, late=late)
    holders = [
        make(name, HOLDER, HolderRecord(name), calls=calls, faults=(Pause, Crash), bound=lambda record: record.n <= 1)
        for name in ("holder-1", "holder-2")
    ]
    alone = Always("one holder", "", tuple(map(hold_of, holders)), lambda *each: sum(each) <= 1)
    lease_first = deadline_order(
        "lease before expiry", "by the times", early="lease", late=Expiry,
        of_early=lambda actor, record: (actor, record.n), of_late=lambda actor, record, event: (record.owner, record.n),
    )  # fmt: skip
    budgets = (at_most("pauses", 1, Pause), at_most("crashes", 1, Crash))
    return System("locks", "", (lock, *holders, ServiceActor(TokenStore())), Network(1), (alone,), budgets,
                  (lease_first,))  # fmt: skip


SYSTEMS = {
    "a beat": lambda make: hearts(make),
    "a beat that may be late": lambda make: hearts(make, late={"beat": 2}),
    "a beat by a clock that falls behind": lambda make: hearts(make, drift=Drift(2, 1, fast=False)),
    "locks by clocks that agree": lambda make: timed_locks(make, expiry=8),
    "locks, and a holder that lags": lambda make: timed_locks(make, drift=LAGS),
    "locks that expire too early": lambda make: timed_locks(make, expiry=6),
    "locks whose leases may end late": lambda make: timed_locks(make, late={"lease": 1}),
    "locks without a tick": untimed_locks,
    "locks whose timers may fire late": lambda make: untimed_locks(make, late=True),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_process_of_one_machine_has_the_states_and_transitions_of_that_machine(name):
    ours, theirs = (explore(SYSTEMS[name](make), engine="plain") for make in (make_single, make_alone))
    for field in ("ended", "states", "transitions", "cuts", "levels", "is_held", "always"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert ours.states > 3


def test_without_its_deadline_order_two_processes_act_together():
    made = untimed_locks(make_single)
    assert explore(made, engine="plain").is_held
    result = explore(replace(made, orders=()), engine="plain")
    assert result.path is not None
    assert result.path.broken == "one holder"


# -- across parties -------------------------------------------------------------------------------------------------


def make_office(timings=None, **options):
    """An office with its clerks; their shifts are counted down in ticks of a quarter of one."""
    timings = {"clerk": Timing(SECOND // 4, ("shift",))} if timings is None else timings
    options = {"faults": (Pause,), "calls": lambda record: (Check(),), **options}
    return ProcessActor("o", OFFICE, lambda life: OfficeRecord(life), timings=timings, **options)


def after(actor, local, *events):
    for event in events:
        sender, to, event = ("v", "o", event) if isinstance(event, Visit) else ("", "o", event)
        local = actor.react(local, Envelope(sender, to, event)).local
    return local


def test_a_due_timer_of_one_party_comes_before_any_event_of_the_process():
    actor = make_office()
    local = after(actor, actor.initial(), Visit("v"), Passed(1), Visit("w"), *[Passed(1)] * 3)
    assert actor.inputs(local) == (PartyInput("o~1/1", ShiftEnd("")), Pause())
    for event in (Visit("x"), Passed(1), Check(), PartyInput("o~1/2", ShiftEnd(""))):
        assert actor.react(local, Envelope("v" if isinstance(event, Visit) else "", "o", event)) is None
    local = after(actor, local, PartyInput("o~1/1", ShiftEnd("")))
    assert [one.party.record.id for one in local.parts.parties] == ["o~1/2"]
    assert Check() in actor.inputs(local)


def test_of_parties_that_are_due_together_all_fire_in_one_step():
    actor = make_office()
    local = after(actor, actor.initial(), Visit("v"), Visit("w"), *[Passed(1)] * 4)
    assert [event for event in actor.inputs(local) if isinstance(event, PartyInput)] == [
        PartyInput("o~1/1", ShiftEnd(""))
    ]
    assert after(actor, local, PartyInput("o~1/1", ShiftEnd(""))).parts.parties == ()


def test_time_passes_all_parties_of_a_process_that_stands_still():
    actor = make_office()
    local = after(actor, actor.initial(), Visit("v"), Passed(1), Visit("w"), Pause(), *[Passed(1)] * 5)
    assert local == after(actor, local, *[Passed(1)] * 9), "how long ago does not matter"
    assert [one.party.party.left for one in local.parts.parties] == [(-1,), (0,)], "only which came first"
    watch = []
    woken = actor.react(local, Envelope("", "o", Wake()), watch).local
    assert [one.party for one in watch if one.machine == "clerk"] == ["o~1/1", "o~1/2"]
    assert woken.parts.parties == ()


def make_pair(timing, **options):
    """A process of two parties with two timers of patience each."""
    from single_process import SHELL, ShellRecord

    from statemachines.kernel import Begin, PartyKind, Process

    kinds = (PartyKind("two", TWO_TIMERS, most=2),)

    def begin(record):
        return tuple(Begin(name, "two", with_id(TwoRecord(), name)) for name in ("n~1/1", "n~1/2"))

    process = Process("pair", SHELL, kinds=kinds, begin=begin)
    return ProcessActor("n", process, lambda life: ShellRecord(life), timings={"two": timing}, **options)


def test_of_timers_with_patience_the_first_fires_across_parties_and_lets_events_go_first():
    actor = make_pair(Timing(1, ("one", "two")), inputs_of={"two": lambda record: (End(),)})
    due = actor.react(actor.initial(), Envelope("clock", "n", Passed(2))).local
    fired = [event for event in actor.inputs(due) if not isinstance(event.event, End)]
    assert [(event.party, type(event.event).__name__) for event in fired] == [("n~1/1", "One")]
    assert actor.react(due, Envelope("clock", "n", Passed(1))) is None, "no tick before it has fired"
    assert actor.react(due, Envelope("", "n", PartyInput("n~1/2", End()))) is not None


def test_instants_are_told_to_every_step_of_a_process():
    def note(record, event, now_ns):
        return replace(record, asked_ns=now_ns), (SetTimer("beat", now_ns + 3),)

    def instant_told(local):
        return party_of(after(actor, local, fired).parts).asked_ns

    actor = make_single("heart", heart(beat=note), HeartRecord())
    local = after(actor, actor.initial(), At(5))
    (fired,) = actor.inputs(local)
    assert instant_told(local) == 5
    assert instant_told(actor.initial()) == 0, "what is remembered of one instant is not taken for another"


def test_a_process_keeps_the_instants_of_a_clock():
    for make in (make_single, make_alone):
        one = make("heart", heart(), HeartRecord())
        assert explore(System("hearts", "", (one, Clock(0, 4)), CERTAIN), engine="plain").states == 2


def asked_over(record, live, dead):
    return replace(record, asked_ns=live(record.asked_ns))


@pytest.mark.parametrize(("stamps", "holds"), [((), False), ((Stamp("asked_ns", 3, asked_over),), True)])
def test_a_party_that_tells_the_time_from_what_is_no_stamp_is_found(stamps, holds):
    from test_ticks import Ask

    ask = lambda record: () if record.asked else (Ask(),)  # noqa: E731
    one = make_single("heart", heart(), HeartRecord(), calls=ask, timing=Timing(1, ("beat",), stamps))
    made = System("hearts", "", (one, TickClock(1)), CERTAIN)
    if holds:
        assert explore(made, engine="plain").is_held
    else:
        with pytest.raises(TellsTime, match="a field holds a time and is no stamp"):
            explore(made, engine="plain")


@pytest.mark.parametrize(
    ("timings", "words"),
    [
        ({"cook": Timing(1, ())}, "cook.*no kind of party; there are: process, clerk"),
        ({"clerk": Timing(1, ("lunch",))}, "lunch.*there are: shift, soon"),
        ({"clerk": Timing(1, ("shift",)), PROCESS: Timing(2)}, "the parties of a process have one tick"),
    ],
)
def test_timings_of_a_process_that_cannot_be_are_refused_with_what_to_do(timings, words):
    with pytest.raises(ConfigurationError, match=words):
        make_office(timings)


def test_a_timer_of_a_timed_process_is_never_late_without_saying_so():
    with pytest.raises(ConfigurationError, match="either late or timed"):
        make_office(late=True)
    both = {"clerk": Timing(1, ("shift",), late={"shift": 2}), PROCESS: Timing(1, (), (Stamp("at", 1, asked_over),))}
    assert make_office(both).timing.describe_timing() == {
        "timed": "shift of clerk (late by 2 ticks at most)",
        "stamps": "at (up to 1 ns, 3 ticks)",
    }
    assert make_office().timing.describe_timing() == {"timed": "shift"}
