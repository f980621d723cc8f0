"""ProcessActor in time: one of a single machine is an `FsmActor` of it; ticks and deadlines hold across parties.

An action that sets a timer which its machine does not declare: one error names the machine, the row and the mend.

`gapless check` for what it has never heard of: a system at `module:ATTRIBUTE`, a protocol that registers itself.
"""

import importlib
import sys
import unittest
from itertools import count
from pathlib import Path

import msgspec
import pytest
from hypothesis import Phase, settings
from lock_toy import (
    HOLDER,
    HOLDING,
    IDLE,
    LAGS,
    LOCK,
    SECOND,
    TICK,
    WAITING,
    Expiry,
    Granted,
    HolderRecord,
    HolderStatus,
    LockRecord,
    TokenStore,
    Want,
    calls,
    few_asks,
    few_tokens,
    is_answer,
    with_period,
)
from msgspec.structs import replace
from office import OFFICE, Check, OfficeRecord, ShiftEnd, Visit
from tank_protocol import TWO_TIMERS, End, TwoRecord, make_single, party_of, with_id
from test_ticks import CERTAIN, HeartRecord, heart, note_question

from statemachines import cli, registry
from statemachines.drivers.node import one_machine
from statemachines.kernel import ConfigurationError, DeclarationError, Fsm, Protocol, Row, SetTimer
from statemachines.kernel.process import PROCESS
from statemachines.testing.machine import MachineTest
from statemachines_spec import (
    Always,
    CheckProtocol,
    Clock,
    Crash,
    Drift,
    Eventually,
    FsmActor,
    Network,
    Pause,
    ServiceActor,
    Stamp,
    System,
    TickClock,
    Timing,
    at_most,
    bug,
    certificates,
    deadline_order,
    explore,
)
from statemachines_spec.directed_system import explore_directed
from statemachines_spec.explorer.actor import Envelope, Passed, Wake
from statemachines_spec.explorer.party import PartyInput
from statemachines_spec.explorer.process_actor import ProcessActor
from statemachines_spec.explorer.shift import TellsTime
from statemachines_spec.protocol import all_parts, choose_systems, of_protocol

sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))


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
    from tank_protocol import SHELL, ShellRecord

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


SAID = (
    "lock_made_up/holder: row 1 (hold_and_look, LK-12) sets the timer 'look', which the machine does not declare; "
    "add Timer('look', ...) to its `timers`, or set one that it declares: 'lease'"
)


def hold_and_look(record, event, now_ns):
    return replace(record, token=event.token), (SetTimer("look", now_ns + 10**9),)


def declare_stray():
    """The holder of the lock, whose answer sets a timer that nobody declared."""
    wanted, _, *others = HOLDER.declared
    return Fsm(
        "holder",
        protocol="lock_made_up",
        record=HOLDER.record_type,
        states=HolderStatus,
        initial=IDLE,
        rows=(wanted, Row(Granted, WAITING, HOLDING, hold_and_look, is_answer, "LK-12"), *others),
        timers=HOLDER.timers,
    )


def make_system():
    calls = {IDLE: (Want(),)}
    holder = FsmActor(
        "holder-1",
        declare_stray(),
        HolderRecord("holder-1"),
        calls=lambda record: calls.get(record.status, ()),
        bound=few_asks,
    )
    return System("stray", "", (FsmActor("lock", LOCK, LockRecord(), bound=few_tokens), holder), Network(2), ())


@pytest.mark.parametrize("command", ["check", "explore"])
def test_a_command_says_it_in_one_line(command, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "stray_system", sys.modules[__name__])
    html = ("--html", str(tmp_path / "page.html")) if command == "explore" else ()
    assert cli.run([command, "stray_system:make_system", "--engine", "plain", *html]) == 2
    assert capsys.readouterr().err == f"error: {SAID}\n"


def test_a_node_says_it_when_the_timer_fires():
    host = one_machine(declare_stray(), HolderRecord)("holder-1~1/1", 0, lambda *step: None)
    (node,) = host.nodes.values()
    node.feed(Want(), 0)
    node.feed(Granted(1, 1), 0)
    with pytest.raises(DeclarationError, match="sets the timer 'look'"):
        node.fire(10**9)


def test_the_tests_of_a_machine_say_it():
    result, case = unittest.TestResult(), MachineTest.of(declare_stray()).TestCase
    case.settings = settings(case.settings, phases=[Phase.generate])
    case("runTest").run(result)
    ((_, failure),) = result.errors or result.failures
    assert SAID in failure


MINE = """
import sys
sys.path.insert(0, {here!r})
from dataclasses import dataclass

from msgspec.structs import replace

import lock_toy
from lock_toy import *
from statemachines.kernel import Protocol
from statemachines_spec import Bug, CheckProtocol, Eventually
from statemachines_spec.bug import change_rows

NOTHING = 3
SYSTEM = lock_system(asks=1)

def paused(size="small", variant="settled"):
    return lock_system(asks={{"small": 1, "ci": 2}}[size], honours=variant == "settled", remote=True)

def needs(this):
    return SYSTEM

def no_system():
    return 7

def build(name, size, variant, without):
    return replace(paused(size, variant), name=name, orders=() if without else SYSTEM.orders)

def waits(system):
    holder = next(actor for actor in system.actors if actor.name == "holder-1")
    return (Eventually("L1", "who waits does not wait for ever", (holder.is_in(WAITING),), lambda on: on),)

NEVER_OPEN = replace(SYSTEM, obligations=(Eventually("L8", "nobody", (), lambda: False),))

SPEC = CheckProtocol(
    systems={{"paused": "a holder stands still"}},
    build=build,
    sizes=("small", "ci"),
    variants={{"settled": "as it is", "no_tokens": "the store ignores tokens"}},
    orders=SYSTEM.orders,
    bugs=(Bug("any-answer", "an answer to an earlier question counts", "LK-12", "the guard of granted",
              change_rows(HOLDER, "hold", when=None)),),
    obligations_of=waits,
)
PROTOCOL = Protocol(
    name="lock_made_up", prefix="LK", machines={{"lock": "lock_toy:LOCK", "holder": "lock_toy:HOLDER"}},
    areas={{"spec": "{module}:SPEC"}},
)
"""

NUMBERS = count(1)


@pytest.fixture(scope="module")
def importable(tmp_path_factory):
    """A folder that modules are imported from; one, so that entries are made again in one process."""
    folder = tmp_path_factory.mktemp("importable")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def mine(importable):
    """A module of somebody else's, importable; its name."""
    module = f"mine_{next(NUMBERS)}"
    (importable / f"{module}.py").write_text(MINE.format(here=str(Path(__file__).parent), module=module))
    importlib.invalidate_caches()
    yield module
    sys.modules.pop(module, None)
    registry._REGISTERED.pop("lock_made_up", None)


@pytest.fixture
def gapless(capsys):
    def run(*arguments):
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


PLAIN = ("--engine", "plain")


@pytest.mark.long
@pytest.mark.parametrize("attribute", ["SYSTEM", "paused"])
def test_a_system_or_a_function_that_makes_one_is_checked(gapless, mine, attribute):
    code, out, err = gapless("check", f"{mine}:{attribute}", *PLAIN)
    assert (code, err) == (0, "")
    assert "checked within these bounds: no-error, one holder, fenced" in out
    assert "purity: every entry made twice" in out
    assert "rows reached in these 1 systems" in out
    assert "  lock: 3 of 4 rows" in out
    assert "    never 3 expiry: ignore [LK-05]" in out


def test_size_and_variant_are_arguments_of_the_function(gapless, mine):
    assert gapless("check", f"{mine}:paused", "--size", "small", "--variant", "no_tokens", *PLAIN)[0] == 1
    code, out, _ = gapless("check", f"{mine}:paused", "--variant", "no_tokens", "--mermaid", *PLAIN)
    assert code == 1
    assert "VIOLATED fenced" in out
    assert "participant holder_1 as holder-1" in out
    out = gapless("check", f"{mine}:paused", "--variant", "no_tokens", "--test", *PLAIN)[1]
    assert f"from {mine} import paused" in out
    assert "one = paused(variant='no_tokens')" in out


@pytest.mark.long
@pytest.mark.parametrize("what", ["PROTOCOL", "SPEC"])
def test_a_protocol_that_registers_itself_is_checked_as_ours(gapless, mine, what):
    code, out, _ = gapless("check", f"{mine}:{what}", "--system", "paused", "--liveness", *PLAIN)
    assert code == 0
    assert "eventually L1: who waits does not wait for ever: open in" in out
    assert gapless("check", f"{mine}:{what}", "--variant", "no_tokens", *PLAIN)[0] == 1
    code, out, _ = gapless("check", f"{mine}:{what}", "--without", "lease before expiry", "--json", *PLAIN)
    assert code == 1
    assert msgspec.json.decode(out)[0]["broken"] == "one holder"


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("SYSTEM", "no obligations, so nothing is claimed: the system may stand still for ever"),
        ("NEVER_OPEN", "eventually L8: nobody: NEVER open, so nothing is claimed"),
    ],
)
def test_obligations_that_judge_nothing_are_inconclusive(gapless, mine, attribute, said):
    code, out, _ = gapless("check", f"{mine}:{attribute}", "--liveness", *PLAIN)
    assert said in out
    assert "fairness: weak" in out
    assert code == 3


def test_the_list_has_every_protocol_from_its_registration(gapless, mine):
    registry.protocol(f"{mine}:PROTOCOL")
    code, out, _ = gapless("check", "list")
    assert code == 0
    assert "lock_made_up, systems (small, ci):" in out
    assert "shared_subscriptions, systems (small, ci, large):" in out
    listed = msgspec.json.decode(gapless("check", "list", "--json")[1])
    assert listed["lock_made_up"]["variants"]["no_tokens"] == "the store ignores tokens"


@pytest.mark.parametrize("name", ["SYSTEM", "paused", "SPEC", "PROTOCOL"])
def test_a_certificate_names_what_it_is_of_and_is_checked_again(gapless, mine, tmp_path, name):
    assert gapless("check", f"{mine}:{name}", "--certify", str(tmp_path / "kept"), *PLAIN)[0] == 0
    (path,) = (tmp_path / "kept").iterdir()
    kept = certificates.read(path)
    assert kept.protocol == f"{mine}:{name}"
    code, out, _ = gapless("check", "--certificate", str(path), *PLAIN)
    assert code == 0
    assert "the same; checked within these bounds" in out
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(kept, states=1)))
    assert gapless("check", "--certificate", str(path), *PLAIN)[0] == 1


@pytest.mark.long
def test_bugs_are_found_through_the_registration(mine):
    registry.protocol(f"{mine}:PROTOCOL")
    assert "lock_made_up/any-answer" in bug.list_bugs()
    (directed,) = of_protocol("lock_made_up").list_directed()
    assert explore_directed(directed).what == ""
    with bug.plant_bug("any-answer") as planted:
        assert planted.clause == "LK-12"
    assert bug.find_bug("lock_made_up/any-answer") is planted
    assert bug.find_bug("late-timer") is bug.find_bug("shared_subscriptions/late-timer")


def test_obligations_may_stand_in_the_system(mine):
    picked = choose_systems(f"{mine}:SYSTEM")
    one = Eventually("L9", "", (), lambda: True)
    assert picked.obligations(msgspec.structs.replace(picked.systems[0], obligations=(one,))) == (one,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{mine}:nothing",), "the module has no 'nothing'"),
        (("{mine}:SYSTM",), "the module has no 'SYSTM'; did you mean 'SYSTEM'?"),
        (("{mine}.py:SYSTEM",), "leave out .py: {mine}:SYSTEM"),
        (("{mine}:NOTHING",), "is neither a System nor a function"),
        (("{mine}:no_system",), "gives a int, and no System"),
        (("{mine}:needs",), "needs 'this'; give it a default"),
        (("{mine}:SYSTEM", "--size", "ci"), "is one by itself, and takes no size"),
        (("{mine}:paused", "--without", "x"), "takes no 'without'"),
        (("{mine}:paused", "--system", "x"), "is one system, and has no others"),
        (("{mine}:SPEC", "--size", "huge"), "there are: small, ci"),
        (("{mine}:SPEC", "--variant", "x"), "settled, no_tokens"),
        (("{mine}:SPEC", "--without", "x"), "lease before expiry"),
        (("no_such_module:SYSTEM",), "there is no module"),
        (("borrowers",), "unknown"),
        ((), "shared_subscriptions"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(gapless, mine, arguments, words):
    code, out, err = gapless("check", *(one.format(mine=mine) for one in arguments))
    assert (code, out) == (2, "")
    assert words.format(mine=mine) in err
    assert len(err.splitlines()) <= 2


def test_a_protocol_without_a_part_is_told_who_has_one(gapless, monkeypatch):
    monkeypatch.setitem(registry._REGISTERED, "bare_one", Protocol(name="bare_one", prefix="BO", machines={}))
    code, out, err = gapless("check", "bare_one")
    assert (code, out) == (2, "")
    assert "has no part for 'spec'" in err
    assert "shared_subscriptions" in err
    assert len(err.splitlines()) <= 2


def test_a_part_that_is_none_is_refused(monkeypatch):
    made = Protocol(name="odd_one", prefix="OD", machines={}, areas={"spec": "lock_toy:LOCK"})
    monkeypatch.setitem(registry._REGISTERED, "odd_one", made)
    with pytest.raises(registry.ConfigurationError, match="stands a Fsm, and no CheckProtocol"):
        of_protocol("odd_one")


def test_the_defaults_of_a_part_are_enough():
    part = CheckProtocol(systems={"one": "a system"}, build=lambda *names: System(str(names), "", (), None))
    assert part.system("one").name == "('one', 'small', 'settled', ())"
    assert [directed.name for directed in part.list_directed()] == ["one"]
    assert part.obligations(part.system("one")) == ()
    with pytest.raises(registry.ConfigurationError, match="deadline order = 'x': there is none"):
        part.system("one", without=("x",))
    assert "shared_subscriptions" in all_parts()


@pytest.mark.long
@pytest.mark.parametrize("name", ["PROTOCOL", "SPEC"])
def test_the_command_that_repeats_a_counterexample_works_in_a_process_that_knows_nothing(gapless, mine, tmp_path, name):
    script = tmp_path / "broken.json"
    words = ("--variant", "no_tokens", "--script", str(script), *PLAIN)
    code, _, said = gapless("check", f"{mine}:{name}", *words)
    assert code == cli.Exit.VIOLATED
    assert f"repeat it with: gapless replay {script}" in said
    registry._REGISTERED.pop("lock_made_up", None)
    code, out, _ = gapless("replay", str(script))
    assert code == cli.Exit.VIOLATED, out
    assert "VIOLATED" in out
