"""What a machine declares of its records is a property of every system that it runs in, whoever made the system."""

from __future__ import annotations

import msgspec
import pytest
from lock_toy import HOLDER, HOLDING
from msgspec.structs import replace

from statemachines import catalogue, cli
from statemachines.kernel import STAY, Call, ConfigurationError, Delegate, Fsm, Ignore, Invariant, Row, Status
from statemachines_spec.explorer.actor import Actor, Reaction
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.party import Party, step_party
from statemachines_spec.explorer.property import Always
from statemachines_spec.explorer.replay import replay
from statemachines_spec.explorer.system import System
from statemachines_spec.protocol import of_protocol


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
