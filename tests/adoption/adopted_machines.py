"""Machines as people write them with `transitions`, each a factory: what its README shows, in our own words."""

import asyncio
import enum

from transitions import Machine, State
from transitions.extensions import (
    AsyncGraphMachine,
    GraphMachine,
    HierarchicalAsyncGraphMachine,
    HierarchicalAsyncMachine,
    HierarchicalGraphMachine,
    HierarchicalMachine,
    LockedGraphMachine,
    LockedHierarchicalGraphMachine,
    LockedHierarchicalMachine,
    LockedMachine,
)
from transitions.extensions.asyncio import AsyncMachine, AsyncTimeout
from transitions.extensions.nesting import NestedState
from transitions.extensions.states import Error, Retry, Tags, Timeout, Volatile, add_state_features


class Lump:
    """A lump of matter."""

    def __init__(self):
        self.heat = 0

    def warm(self):
        self.heat = (self.heat + 1) % 3

    def is_hot(self):
        return self.heat > 1

    def is_cold(self):
        return not self.is_hot()


def quickstart():
    """A superhero: ordered states, a callback, a condition, a wildcard source."""

    class Hero(Machine):
        def __init__(self):
            self.exhausted = False
            self.medals = 0
            super().__init__(states=["asleep", "hanging", "saving", "sweaty"], initial="asleep", auto_transitions=False)
            self.add_transition("wake", "asleep", "hanging")
            self.add_transition("help", "hanging", "saving", before="cape")
            self.add_transition("finish", "saving", "sweaty", after="decorate")
            self.add_transition("clean", "sweaty", "asleep", conditions="is_exhausted")
            self.add_transition("clean", "sweaty", "hanging")
            self.add_transition("sleep", "*", "asleep")

        def is_exhausted(self):
            return self.exhausted

        def decorate(self):
            self.medals = min(self.medals + 1, 2)
            self.exhausted = not self.exhausted

        def cape(self):
            print("a cape")

    return Hero()


def basic():
    lump = Lump()
    Machine(lump, states=["solid", "liquid", "gas"], initial="solid", transitions=[["melt", "solid", "liquid"]])
    return lump


def state_callbacks():
    class Kettle(Lump):
        def on_enter_gas(self):
            self.warm()

        def on_exit_gas(self):
            self.heat = 0

    kettle = Kettle()
    states = [State("liquid"), State("gas", on_enter=["warm"])]
    machine = Machine(kettle, states=states, initial="liquid", ordered_transitions=True)
    machine.on_enter_liquid("warm")
    return kettle


def final_states():
    lump = Lump()
    states = ["solid", State("gone", final=True)]
    Machine(lump, states=states, initial="solid", on_final="warm", transitions=[["burn", "solid", "gone"]])
    return lump


class Light(enum.Enum):
    GREEN = 1
    YELLOW = 2
    RED = 3


def enum_states():
    lump = Lump()
    Machine(lump, states=Light, initial=Light.RED, transitions=[["go", Light.RED, Light.GREEN]])
    return lump


def ordered():
    lump = Lump()
    machine = Machine(lump, states=["a", "b", "c"], initial="a", auto_transitions=False)
    machine.add_ordered_transitions(loop=False, conditions=["is_cold", "is_cold"])
    return lump


def wildcard_reflexive_internal():
    lump = Lump()
    machine = Machine(lump, states=["a", "b"], initial="a", auto_transitions=False)
    machine.add_transition("touch", "*", "=", after="warm")
    machine.add_transition("inside", "*", None, after="warm")
    machine.add_transition("go", ["a", "b"], "b")
    return lump


def conditional():
    lump = Lump()
    machine = Machine(lump, states=["solid", "gas"], initial="solid", auto_transitions=False)
    machine.add_transition("heat_up", "solid", "gas", conditions="is_hot", unless=["is_cold"])
    machine.add_transition("heat_up", "solid", None, before="warm")
    return lump


def every_callback():
    """prepare, before, after, and those of the machine, with `send_event`."""

    class Counter:
        def __init__(self):
            self.calls = ()

        def prepare(self, event):
            self.calls = ()

        def note(self, event):
            self.calls = (*self.calls, event.event.name)

        def done(self, event):
            self.calls = (*self.calls, "end")[-3:]

    counter = Counter()
    Machine(
        counter,
        states=["a", "b"],
        initial="a",
        auto_transitions=False,
        send_event=True,
        prepare_event="prepare",
        before_state_change="note",
        after_state_change="note",
        finalize_event="done",
        transitions=[{"trigger": "go", "source": "a", "dest": "b", "prepare": "note", "before": "note"}],
    )
    return counter


def queued():
    class Chain(Lump):
        def follow(self):
            self.hop()

    chain = Chain()
    transitions = [{"trigger": "go", "source": "a", "dest": "b", "before": "follow"}, ["hop", "b", "c"]]
    Machine(chain, states=["a", "b", "c"], initial="a", queued=True, auto_transitions=False, transitions=transitions)
    return chain


def triggers_within_callbacks():
    class Chain(Lump):
        def follow(self):
            if self.may_hop():
                self.hop()

    chain = Chain()
    transitions = [{"trigger": "go", "source": "a", "dest": "b", "after": "follow"}, ["hop", "b", "c"]]
    Machine(chain, states=["a", "b", "c"], initial="a", auto_transitions=False, transitions=transitions)
    return chain


def exceptions_handled():
    class Fragile(Lump):
        def fail(self):
            raise ValueError("broken")

        def repair(self):
            self.heat = 2

    fragile = Fragile()
    transitions = [{"trigger": "go", "source": "a", "dest": "b", "before": "fail"}]
    Machine(fragile, states=["a", "b"], initial="a", on_exception="repair", transitions=transitions)
    return fragile


def invalid_triggers_ignored():
    lump = Lump()
    states = ["a", {"name": "b", "ignore_invalid_triggers": True}]
    Machine(lump, states=states, initial="a", transitions=[["go", "a", "b"], ["back", "a", "a"]])
    return lump


def two_models():
    lumps = [Lump(), Lump()]
    Machine(lumps, states=["a", "b"], initial="a", transitions=[["go", "a", "b"]])
    return lumps


def two_machines():
    lump = Lump()
    Machine(lump, states=["a", "b"], initial="a", transitions=[["go", "a", "b"]])
    Machine(lump, states=["on", "off"], initial="on", transitions=[["flip", "on", "off"]], model_attribute="power")
    return lump


def partial_setup():
    """The machine in an attribute of its model, states and transitions added later."""

    class Owner(Lump):
        def __init__(self):
            super().__init__()
            self.machine = Machine(self, states=["a"], initial="a", auto_transitions=False)
            self.machine.add_states(["b"])
            self.machine.add_transition("go", "a", "b", before=lambda: self.warm())

    return Owner()


def nested():
    lump = Lump()
    resting = {"name": "resting", "children": ["sitting", "lying"], "initial": "sitting"}
    resting["transitions"] = [["down", "sitting", "lying"]]
    machine = HierarchicalMachine(lump, states=["walking", resting], initial="walking", auto_transitions=False)
    machine.add_transition("rest", "walking", "resting", after="warm")
    machine.add_transition("nap", "walking", "resting_lying")
    machine.add_transition("walk", "resting", "walking")
    return lump


def nested_with_separator():
    class Dotted(NestedState):
        separator = "."

    class DottedMachine(HierarchicalMachine):
        state_cls = Dotted

    lump = Lump()
    states = ["a", {"name": "b", "children": ["x", "y"], "initial": "x"}]
    DottedMachine(lump, states=states, initial="a", transitions=[["go", "a", "b.y"], ["back", "b", "a"]])
    return lump


def parallel():
    lump = Lump()
    left = {"name": "left", "states": ["off", "on"], "initial": "off", "transitions": [["flip", "off", "on"]]}
    right = {"name": "right", "states": ["off", "on"], "initial": "off"}
    right["transitions"] = [["flip", "off", "on"], ["flop", "on", "off"]]
    states = ["down", {"name": "up", "parallel": [left, right]}]
    machine = HierarchicalMachine(lump, states=states, initial="down", auto_transitions=False)
    machine.add_transition("start", "down", "up")
    machine.add_transition("stop", "up", "down")
    return lump


def reused():
    counting = HierarchicalMachine(
        states=["one", "two", "done"], initial="one", transitions=[["more", "one", "two"], ["end", "two", "done"]]
    )
    lump = Lump()
    states = ["waiting", {"name": "counting", "children": counting, "remap": {"done": "waiting"}}]
    HierarchicalMachine(lump, states=states, initial="waiting", transitions=[["count", "waiting", "counting"]])
    return lump


class Inner(enum.Enum):
    X = 1
    Y = 2


class Outer(enum.Enum):
    A = 1
    B = Inner


def nested_enum():
    lump = Lump()
    transitions = [["go", Outer.A, Inner.Y], ["back", Outer.B, Outer.A]]
    HierarchicalMachine(lump, states=Outer, initial=Outer.A, auto_transitions=False, transitions=transitions)
    return lump


class Worker:
    """A model with coroutines."""

    def __init__(self):
        self.done = 0

    async def work(self):
        await asyncio.sleep(3600)
        self.done = (self.done + 1) % 3

    async def is_ready(self):
        return True


def asynchronous():
    worker = Worker()
    transitions = [{"trigger": "go", "source": "a", "dest": "b", "before": "work", "conditions": "is_ready"}]
    AsyncMachine(worker, states=["a", "b"], initial="a", transitions=[*transitions, ["back", "b", "a"]])
    return worker


def asynchronous_queued():
    worker = Worker()
    transitions = [{"trigger": "go", "source": "a", "dest": "b", "before": "work"}, ["back", "b", "a"]]
    AsyncMachine(worker, states=["a", "b"], initial="a", queued="model", transitions=transitions)
    return worker


def asynchronous_nested():
    worker = Worker()
    states = ["a", {"name": "b", "children": ["x"], "initial": "x"}]
    transitions = [{"trigger": "go", "source": "a", "dest": "b", "before": "work"}, ["back", "b", "a"]]
    HierarchicalAsyncMachine(worker, states=states, initial="a", transitions=transitions)
    return worker


@add_state_features(Tags, Timeout)
class TimeoutMachine(Machine):
    """States that end by themselves."""


class Caller(Lump):
    """Gives up after a while."""

    def give_up(self):
        self.warm()
        self.to_idle()


def timeout():
    caller = Caller()
    states = ["idle", {"name": "ringing", "timeout": 30, "on_timeout": "give_up", "tags": ["busy"]}]
    TimeoutMachine(caller, states=states, initial="idle", transitions=[["call", "idle", "ringing"]])
    return caller


@add_state_features(AsyncTimeout)
class AsyncTimeoutMachine(AsyncMachine):
    """The same with coroutines."""


class AsyncCaller(Lump):
    """Gives up after a while."""

    async def give_up(self):
        self.warm()
        await self.to_idle()


def asynchronous_timeout():
    caller = AsyncCaller()
    states = ["idle", {"name": "ringing", "timeout": 30, "on_timeout": "give_up"}]
    AsyncTimeoutMachine(caller, states=states, initial="idle", transitions=[["call", "idle", "ringing"]])
    return caller


@add_state_features(Retry)
class RetryMachine(Machine):
    """States that are entered again a few times."""


def retry():
    lump = Lump()
    states = ["idle", {"name": "trying", "retries": 2, "on_failure": "to_failed"}, "failed"]
    transitions = [["try_it", ["idle", "trying"], "trying"], ["rest", "trying", "idle"]]
    RetryMachine(lump, states=states, initial="idle", transitions=transitions)
    return lump


class Scope:
    """Lives as long as its state."""

    def __init__(self):
        self.count = 0


@add_state_features(Volatile)
class VolatileMachine(Machine):
    """States with an object of their own."""


def volatile():
    class Visit:
        def count(self):
            self.scope.count = (self.scope.count + 1) % 3

    visit = Visit()
    states = ["out", {"name": "inside", "volatile": Scope}]
    look = {"trigger": "look", "source": "inside", "dest": None, "before": "count"}
    VolatileMachine(visit, states=states, initial="out", transitions=[["enter", "out", "inside"], look])
    return visit


@add_state_features(Error)
class ErrorMachine(Machine):
    """States that nobody leaves must be accepted."""


def error():
    lump = Lump()
    states = ["a", "stuck", {"name": "end", "accepted": True}]
    transitions = [["fail", "a", "stuck"], ["finish", "a", "end"]]
    ErrorMachine(lump, states=states, initial="a", auto_transitions=False, transitions=transitions)
    return lump


def _of(kind, **settings):
    def make():
        lump = Lump()
        kind(lump, states=["a", "b"], initial="a", transitions=[["go", "a", "b"], ["back", "b", "a"]], **settings)
        return lump

    make.__name__ = kind.__name__
    return make


LOCKED = [_of(one) for one in (LockedMachine, LockedHierarchicalMachine)]
GRAPHS = [
    _of(one, graph_engine="mermaid")
    for one in (
        *(GraphMachine, HierarchicalGraphMachine, LockedGraphMachine),
        *(LockedHierarchicalGraphMachine, AsyncGraphMachine, HierarchicalAsyncGraphMachine),
    )
]

# factory -> values that are reached, rows that nothing takes
EXPECTED = {
    quickstart: (15, 0),
    basic: (2, 0),
    state_callbacks: (4, 0),
    final_states: (2, 0),
    enum_states: (2, 0),
    ordered: (3, 0),
    wildcard_reflexive_internal: (6, 0),
    conditional: (4, 0),
    every_callback: (4, 0),
    queued: (2, 0),
    triggers_within_callbacks: (2, 0),
    exceptions_handled: (2, 0),
    invalid_triggers_ignored: (2, 0),
    two_models: (4, 0),
    two_machines: (4, 0),
    partial_setup: (2, 0),
    nested: (9, 0),
    nested_with_separator: (2, 0),
    parallel: (4, 0),
    reused: (3, 0),
    nested_enum: (2, 0),
    asynchronous: (6, 0),
    asynchronous_queued: (6, 0),
    asynchronous_nested: (6, 0),
    timeout: (6, 0),
    asynchronous_timeout: (6, 0),
    retry: (8, 0),
    volatile: (4, 0),
    error: (3, 0),
    **dict.fromkeys((*LOCKED, *GRAPHS), (2, 0)),
}
