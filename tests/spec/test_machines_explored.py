"""What a machine declares of its records is a property of every system that it runs in, whoever made the system.

ProcessActor: a whole process as a component: turns, timers, pauses and crashes across its parties.

A step that is not a function of its record and event is refused, and the entry is named.

Every system begins by the rules of every variant: what its properties look at is there in each.

Environments in place of parties that systems leave out: printed among the bounds, and small.

Several instances of adopted machines are one system: states multiply, steps do not, and a property relates them.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from subprocess import CalledProcessError

import msgspec
import office
import pytest
from lock_toy import HOLDER, HOLDING
from msgspec.structs import replace
from office import OFFICE, Busy, Check, ClerkRecord, OfficeRecord, Question, Reply, Visit
from symmetric_system import forgetting, iterating
from transitions import Machine

from statemachines import catalogue, cli, registry
from statemachines.adoption import adopt
from statemachines.kernel import STAY, Call, ConfigurationError, Delegate, Fsm, Ignore, Invariant, Row, Status
from statemachines_spec.bug import change_rows
from statemachines_spec.certificates import find_system
from statemachines_spec.explorer import purity
from statemachines_spec.explorer.actor import Actor, Crash, Envelope, Pause, Reaction, Restart
from statemachines_spec.explorer.adopted_actor import AdoptedActor, build_adopted_system
from statemachines_spec.explorer.entry_tables import Nondeterministic
from statemachines_spec.explorer.environment import LINES_MAX, Environment
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.party import Party, step_party
from statemachines_spec.explorer.process_actor import PartyInput, ProcessActor
from statemachines_spec.explorer.property import Always, Sometimes
from statemachines_spec.explorer.purity import Entries, recheck
from statemachines_spec.explorer.replay import replay
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.protocol import choose_systems, of_protocol, system_at


class Phase(Status):
    ON = "on"
    OVER = "over"


class Add(Call, frozen=True):
    pass


class Jump(Call, frozen=True):
    pass


class Drawer(msgspec.Struct, frozen=True):
    id: str
    status: Phase = Phase.ON
    n: int = 0


class Desk(msgspec.Struct, frozen=True):
    id: str
    status: Phase = Phase.ON
    drawers: tuple[Drawer, ...] = ()


def add(record, event, now_ns):
    return replace(record, n=record.n + 1), ()


def jump(record, event, now_ns):
    return replace(record, n=record.n + 3), ()


def below(most):
    return Invariant("stays-low", "X-1", lambda record: record.n < most)


def counter(*invariants):
    rows = (
        Row(Add, Phase.ON, STAY, add, None, "X-1"),
        Row(Jump, Phase.ON, STAY, jump, None, "X-1"),
        Ignore((Add, Jump), Phase.OVER, "X-1"),
    )
    return Fsm(
        "counter", record=Drawer, states=Phase, initial=Phase.ON, rows=rows, key=lambda record: record.id,
        invariants=invariants,
    )  # fmt: skip


def desk(drawer):
    """A machine with a child machine, of whose promises it promises nothing."""

    def first(record, event, now_ns, number=-1):
        child, effects, step = drawer.child_step(record.drawers[0], event, now_ns, number)
        return replace(record, drawers=(child,)), effects, (step,)

    rows = (
        *(Row(kind, Phase.ON, STAY, Delegate(first), None, "X-2") for kind in (Add, Jump)),
        Ignore((Add, Jump), Phase.OVER, "X-2"),
    )
    return Fsm("desk", record=Desk, states=Phase, initial=Phase.ON, rows=rows, children=(drawer,))


def counting(fsm, record, *properties):
    """Two that count, to 6 each at most."""
    actors = tuple(
        FsmActor(name, fsm, record(name), calls=lambda _: (Add(), Jump()), bound=lambda one: count_of(one) <= 6)
        for name in ("one", "two")
    )
    return System("counting", "two that count", actors, Network(1), properties)


def count_of(record):
    return record.n if isinstance(record, Drawer) else record.drawers[0].n


@pytest.mark.parametrize("engine", ["plain", "compiled"])
@pytest.mark.parametrize(
    ("make", "record"),
    [(lambda fsm: fsm, Drawer), (desk, lambda name: Desk(name, drawers=(Drawer("first"),)))],
    ids=["by itself", "as a child machine"],
)
def test_what_breaks_is_found_by_a_shortest_run_with_no_property_declared(make, record, engine):
    made = counting(make(counter(below(4))), record)
    result = explore(made, engine=engine, hashing=False)
    assert result.always == {"no-error": True, "counter:stays-low": False}
    assert result.path.broken == "counter:stays-low"
    assert result.path.why == "counter declares it [X-1]"
    by_hand = (
        made.actors[0].view(lambda one: int(count_of(one) < 4)),
        made.actors[1].view(lambda one: int(count_of(one) < 4)),
    )
    asked = counting(make(counter()), record, Always("low", "", by_hand, lambda *each: all(each)))
    assert len(result.path.legs) == len(explore(asked, engine="plain", hashing=False).path.legs) == 2
    assert replay(made, result.path).broken == "counter:stays-low"


def test_what_holds_is_named_and_costs_no_transition():
    without, with_it = (explore(counting(counter(*some), Drawer), engine="plain") for some in ((), (below(9),)))
    assert with_it.always == {"no-error": True, "counter:stays-low": True}
    assert (with_it.states, with_it.transitions, with_it.edges) == (without.states, without.transitions, without.edges)


def test_it_is_evaluated_once_for_each_local_state():
    seen = []

    def holds(record):
        seen.append(record)
        return True

    result = explore(counting(counter(Invariant("is-seen", "X-1", holds)), Drawer), engine="plain")
    assert len(seen) == sum(result.locals.values()) < result.states


def test_what_is_broken_at_the_beginning_is_found_there():
    result = explore(counting(counter(below(0)), Drawer), engine="plain")
    assert (result.ended, result.path.broken, result.path.legs) == ("violated", "counter:stays-low", ())


def test_one_that_raises_does_not_hold():
    result = explore(counting(counter(Invariant("looks", "X-1", lambda record: record.none)), Drawer), engine="plain")
    assert result.path.broken == "counter:looks"


class Twice(Actor):
    """Takes two steps in one reaction, and keeps what comes of the second.  `names`: it says so."""

    def __init__(self, fsm, names=True):
        super().__init__("twice")
        self.fsm_used = fsm
        self.names = names

    @property
    def machines(self):
        return (self.fsm_used,) if self.names else ()

    def initial(self):
        return Party(Drawer("twice"))

    def inputs(self, local):
        return (Jump(),) if local.record.n == 0 else ()

    def react(self, local, envelope, watch=None):
        for event in (Jump(), Add()):
            local, _ = step_party(self.fsm_used, local, event, "twice", watch)
        return Reaction(local)


def test_a_record_that_the_next_step_of_a_reaction_replaces_is_looked_at():
    never_three = Invariant("never-three", "X-1", lambda record: record.n != 3)
    one = System("twice", "", (Twice(counter(never_three)),), Network(1))
    assert explore(one, engine="plain").path.broken == "counter:never-three"


def test_a_machine_that_its_component_does_not_name_is_an_error():
    one = System("twice", "", (Twice(counter(below(9)), names=False),), Network(1))
    with pytest.raises(ConfigurationError, match="steps counter, and does not name it in `machines`"):
        explore(one, engine="plain")


REACHED = [
    ("shared_subscriptions", "late-copies", "borrower", "connected"),
    ("shared_subscriptions", "late-copies", "stream", "granted"),
    ("shared_subscriptions", "late-copies", "leader", "leading"),
    ("shared_subscriptions", "late-copies", "assignment", "granting"),
    ("shared_subscriptions", "next-leader", "session", "fetching"),
    ("shared_subscriptions", "pretender", "witness", "asking"),
    ("shared_subscriptions", "alone", "private", "listing"),
    ("shared_subscriptions", "streams-told", "stream", "granted"),
    ("missed_samples", "crowded-cache", "reliability_cache", "crowded"),
    ("missed_samples", "two-deep", "subscriber", "subscribed"),
    ("sequence_windows", "two-publishers", "publisher_window", "current"),
    ("sequence_windows", "two-publishers", "subscriber_window", "current"),
    ("sequence_windows", "advisories", "loss_notifier", "waiting"),
    ("sequence_windows", "inbox", "inbox_window", "known"),
    ("sequence_windows", "joins", "late_join", "told"),
    ("cursor_recovery", "one-each", "writer", "written"),
    ("cursor_recovery", "one-each", "reader", "delivered"),
    ("mqtt_connections", "delivering", "mqtt_connection", "connected"),
    ("persistent_sessions", "exactly-once", "session_resume", "subscribing"),
    ("persistent_sessions", "taken-over", "takeover", "begun"),
    ("persistent_sessions", "expiry", "session_life", "connected"),
    ("persistent_sessions", "collected", "collector", "finding"),
]


@pytest.mark.parametrize(
    ("protocol", "system", "machine", "status"), REACHED, ids=[f"{one[1]}: {one[2]}" for one in REACHED]
)
def test_every_shipped_machine_is_judged_wherever_it_runs(monkeypatch, protocol, system, machine, status):
    (fsm,) = (one for one in catalogue.machines(protocol) if one.name == machine)
    never = Invariant("never-there", "X-1", lambda record: record.status.value != status)
    monkeypatch.setattr(fsm, "invariants", (*fsm.invariants, never))
    one = of_protocol(protocol).system(system)
    result = explore(replace(one, origin=None), engine="plain", hashing=False)
    assert result.path is not None
    assert result.path.broken == f"{machine}:never-there"
    last = result.path.legs[-1].turns
    assert any((machine, status) == (step.machine, step.dest) for turn in last for step in turn.steps)


def test_the_command_says_which_promise_broke(monkeypatch, capsys):
    broken = Invariant("never-holds", "X-1", lambda record: record.status is not HOLDING)
    monkeypatch.setattr(HOLDER, "invariants", (broken,))
    assert cli.run(("check", "lock_toy:lock_system", "--engine", "plain")) == 1
    assert (
        "VIOLATED holder:never-holds: lock_made_up/holder declares it [X-1]; a shortest run" in capsys.readouterr().out
    )


sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))


def make_actor(**options):
    options = {"lives": 2, "faults": (Crash, Pause), "calls": lambda record: (Check(),), **options}
    return ProcessActor("o", OFFICE, lambda life: OfficeRecord(life), bound=has_few_clerks, **options)


def has_few_clerks(parts):
    """At most two clerks in a life."""
    return parts.own.record.number <= 2


def count_clerks(parts):
    return len(parts.parties)


class Visitor(Actor):
    """It comes, and asks, whenever it likes."""

    def initial(self):
        return ClerkRecord("v")

    def inputs(self, local):
        return (Visit("v"), Question(1))

    def react(self, local, envelope, watch=None):
        if envelope.sender:
            return Reaction(local)
        to = "o" if isinstance(envelope.event, Visit) else "o~1/1"
        return Reaction(local, (Envelope("v", to, envelope.event),))


def build(*properties, **options):
    actor = make_actor(**options)
    visitor = Visitor("v")
    agree = Always(
        "clerks known",
        "the office knows its clerks",
        (actor.view(lambda parts: int(not agrees(parts))),),
        lambda bad: not bad,
    )
    two = Sometimes("two clerks", "both serve", (actor.view(count_clerks, 3),), lambda count: count == 2)
    budgets = (at_most("crash", 1, Crash), at_most("pause", 1, Pause))
    return System("office", "", (actor, visitor), Network(1), (agree, two, *properties), budgets)


def agrees(parts):
    return sorted(parts.own.record.clerks) == [one.party.record.id for one in parts.parties]


def test_a_kind_that_exceeds_its_bound_is_refused_in_the_first_exploration():
    actor = ProcessActor("o", OFFICE, lambda life: OfficeRecord(life, limit=3), bound=lambda parts: True)
    result = explore(System("office", "", (actor, Visitor("v")), Network(1)), engine="plain")
    assert "office: begins more than 2 of clerk at a time; guard the row that begins them, or declare more" in (
        result.path.why
    )


def test_two_processes_of_one_name_are_refused():
    with pytest.raises(ConfigurationError, match="'o': two components have this name; rename one"):
        System("office", "", (make_actor(), make_actor()), Network(1)).check()


def test_a_process_is_explored_with_its_parties():
    result = explore(build())
    assert (result.is_held, result.is_shown, result.ended) == (True, True, "complete")
    machines = {machine for machine, _, _ in result.cells}
    assert machines == {"office", "clerk"}


def test_a_mistake_in_the_table_of_a_process_is_found():
    with ExitStack() as stack:
        change_rows(office.OFFICE_MACHINE, "forget_clerk", do=None)(stack)
        result = explore(build())
    assert result.path is not None
    assert result.path.broken == "clerks known"


def test_what_goes_on_at_once_does_so_within_the_turn():
    actor = make_actor(tells={Busy: "listener"})
    local = actor.react(actor.initial(), Envelope("v", "o", Visit("v"))).local
    reaction = actor.react(actor.initial(), Envelope("v", "o", Visit("v")))
    assert reaction.sends == (Envelope("o~1/1", "v", Reply(0)),)
    assert reaction.calls == (Envelope("o~1/1", "listener", Busy()),)
    assert [one.party.timers for one in local.parts.parties] == [(("shift", ""),)]


def test_a_process_that_crashed_comes_back_with_another_life_or_with_its_disk():
    actor = make_actor(disk=lambda crashed, fresh: replace(fresh, gone=crashed.gone + 1))
    gone = actor.react(actor.initial(), Envelope("", "o", Crash())).local
    assert actor.inputs(gone) == (Restart(),)
    assert actor.react(gone, Envelope("v", "o", Visit("v"))).local == gone
    back = actor.react(gone, Envelope("", "o", Restart())).local
    assert (back.life, back.parts.own.record) == (2, OfficeRecord("o~2", gone=1))


def test_a_timer_that_was_taken_back_may_fire_late():
    actor = make_actor(late=True)
    local = actor.react(actor.initial(), Envelope("v", "o", Visit("v"))).local
    fired = next(event for event in actor.inputs(local) if isinstance(event, PartyInput))
    assert fired.party == "o~1/1"
    local = actor.react(local, Envelope("", "o", fired)).local
    assert local.parts.parties == ()


def test_a_step_that_is_no_function_is_an_error_of_whoever_declared_it():
    answers = iter(range(1_000))

    def reply(record, event, now_ns):
        return replace(record, asked=next(answers)), ()

    with ExitStack() as stack:
        change_rows(office.CLERK, "reply", do=reply, when=lambda record, event: True)(stack)
        actor = make_actor()
        local = actor.react(actor.initial(), Envelope("v", "o", Visit("v"))).local
        with pytest.raises(Nondeterministic, match="two results for Question"):
            actor.react(local, Envelope("v", "o~1/1", Question(1)))


def test_what_leaves_a_process_is_not_answered_inside_its_turn():
    actor = make_actor(route=lambda to: (to, "copy"))
    reaction = actor.react(actor.initial(), Envelope("v", "o", Visit("v")))
    assert [(one.to, one.event) for one in reaction.sends] == [("v", Reply(0)), ("copy", Reply(0))]
    assert reaction.calls == ()


def test_a_step_that_counts_its_calls_is_refused():
    with pytest.raises(Nondeterministic, match=r"listener: two results for Note\(n=10\)"):
        explore(forgetting(), engine="plain")


def test_a_step_that_iterates_a_set_is_refused_by_another_hash_seed():
    with pytest.raises(Nondeterministic, match=r"writer: another result.*hash seed"):
        explore(iterating(), engine="plain")


@pytest.mark.long
def test_declared_machines_come_out_alike_under_another_hash_seed():
    entries = Entries(system_at("lock_toy:lock_system", asks=1, crashes=1))
    result = explore(entries.system, engine="plain", entries=entries)
    assert result.rechecked == sum(result.entries.values())
    assert recheck(entries, 10) == 10


@pytest.mark.long
def test_the_other_process_goes_on_for_the_next_system_and_is_another_where_the_path_is(monkeypatch, tmp_path):
    entries = Entries(system_at("lock_toy:lock_system", asks=1, crashes=1))
    explore(entries.system, engine="plain", entries=entries)
    first = purity._other()
    assert recheck(entries, 10) == recheck(entries, 3) + 7
    assert purity._other() is first
    monkeypatch.syspath_prepend(tmp_path)
    assert purity._other() is not first
    with pytest.raises(ValueError, match="closed"):
        first.make_digests(entries.system.origin, [])


def test_what_the_other_process_dies_of_is_told_and_the_next_is_another():
    entries = Entries(system_at("lock_toy:lock_system", asks=1, crashes=1))
    explore(entries.system, engine="plain", entries=entries)
    entries.system = msgspec.structs.replace(entries.system, origin=("os:_exit", {"status": 7}))
    with pytest.raises(CalledProcessError, match="7"):
        recheck(entries, 10)
    assert explore(system_at("lock_toy:lock_system", asks=1, crashes=1), engine="plain").rechecked > 0


def test_who_looks_for_a_known_mistake_may_have_each_entry_made_once():
    made = forgetting()
    listener = made.actors[1]
    entries = Entries(made, twice=False)
    explore(made, engine="plain", entries=entries, states_max=20)
    assert listener.calls == entries.components[1].entries > 0


OTHER_RULES = [
    (name, variant)
    for name in registry.names()
    if "spec" in registry.protocol(name).areas
    for variant in list(of_protocol(name).variants)[1:]
]


@pytest.mark.parametrize(("protocol", "variant"), OTHER_RULES)
def test_every_system_begins_by_the_rules_of_a_variant(protocol, variant):
    for made in choose_systems(protocol, variant=variant).systems:
        assert explore(made, engine="plain", hashing=False, states_max=10).states > 1


LARGER = {
    "the group's leader, its store, deliveries and clients": "D-1153, D-1315",
    "the group's leader and its store": "D-1315",
    "the node of sessions": "D-520, D-1315",
}
"""Environments of more lines, with the decisions that say why."""


def list_environments(kind=Actor):
    """Those of every kind of component, once the systems of all protocols are imported."""
    for one in registry.protocols():
        of_protocol(one.name)
    for one in kind.__subclasses__():
        yield from one.environments
        yield from list_environments(one)


def two_lines(record):
    """Not counted."""

    return record


def test_lines_are_counted_without_docstrings_and_empty_ones():
    assert Environment("nobody", "nothing", (two_lines,)).count_lines() == 2


def test_an_environment_is_small_or_a_decision_says_why_it_is_not():
    sizes = {one.parties: one.count_lines() for one in list_environments()}
    assert sizes.pop("the witness") == 28
    assert {parties for parties, lines in sizes.items() if lines > LINES_MAX} == set(LARGER), sizes


@pytest.mark.parametrize(
    ("protocol", "system", "name", "parties"),
    [
        ("shared_subscriptions", "pause", "consumer-1", "the witness"),
        ("shared_subscriptions", "sessions", "consumer-1", "the witness"),
        ("persistent_sessions", "group-refused", "groups", "the group's leader, its store, deliveries and clients"),
        ("mqtt_connections", "publishing", "session", "the node of sessions"),
    ],
)
def test_what_stands_in_place_of_a_party_is_printed_among_the_bounds(protocol, system, name, parties):
    part = of_protocol(protocol)
    made = find_system(protocol, system, size=part.sizes[0], variant=next(iter(part.variants)))
    assert f"{name}: in place of {parties}" in made.describe_bounds()


def test_a_component_that_runs_the_whole_process_has_no_environment():
    made = find_system("shared_subscriptions", "pretender", size="small", variant="settled")
    found = [one for one in made.describe_bounds() if "in place of" in one]
    assert found == ["consumer-2: in place of the witness"]


class Lamp:
    """Counts to three, and may fail."""

    def __init__(self):
        self.count = 0

    def more(self):
        self.count = (self.count + 1) % 3

    def fail(self):
        raise ValueError("burnt")


def make_lamp(fails=False):
    lamp = Lamp()
    machine = Machine(lamp, ["off", "on"], initial="off", auto_transitions=False)
    machine.add_transition("flip", "off", "on", after="more")
    machine.add_transition("flip", "on", "off")
    if fails:
        machine.add_transition("burn", "on", "off", before="fail")
    return lamp


def lamps(*names, holds=()):
    return dict.fromkeys(names, adopt(make_lamp, invariants=holds))


@pytest.mark.long
def test_states_multiply_and_steps_do_not():
    one = adopt(make_lamp).search().found
    result = explore(build_adopted_system("lamps", lamps("a", "b", "c")), engine="plain")
    assert result.states == one.states**3 == 216
    assert result.transitions == 3 * 216
    assert sum(result.entries.values()) == 3 * one.steps


def test_a_callback_that_raises_breaks_the_system():
    adopted = adopt(lambda: make_lamp(fails=True))
    result = explore(build_adopted_system("lamps", {"a": adopted}), engine="plain")
    assert result.path is not None
    assert "burnt" in result.path.why


def test_values_are_named_and_bounded():
    adopted = adopt(make_lamp, within=["count < 2"])
    system = build_adopted_system("lamps", {"a": adopted})
    (actor,) = system.actors
    assert isinstance(actor, AdoptedActor)
    assert actor.bounds()["within"] == "count < 2"
    result = explore(system, engine="plain")
    assert (result.states, result.cuts) == (3, 1)
