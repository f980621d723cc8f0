"""A machine whose steps cannot be repeated is refused, in one line that names what was touched and what to do.

The table of an adopted machine decides as the live machine does, for random machines nested in many ways.
"""

from __future__ import annotations

import datetime
import enum
import functools
import itertools
import logging
import random
import socket
import sys
import threading
import time
from collections import Counter
from copy import deepcopy
from functools import partial
from itertools import combinations, count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from transitions import Machine, MachineError
from transitions.extensions.asyncio import AsyncMachine
from transitions.extensions.nesting import HierarchicalMachine, NestedState

from statemachines.adoption import NotRepeatable, adopt
from statemachines.adoption.declared_table import build_fsm
from statemachines.adoption.live_machine import name_state, read_subject, walk_transitions
from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log.machine_table import Symbol, evaluate_guard, read_table

SHARED = {"step": 1}
COUNTS = 0


def on_two_states(model, **callbacks):
    """`go` from a to b with these callbacks, and `back`."""
    transitions = [{"trigger": "go", "source": "a", "dest": "b", **callbacks}, ["back", "b", "a"]]
    Machine(model, states=["a", "b"], initial="a", auto_transitions=False, transitions=transitions)
    return model


class Blank:
    """A model without attributes."""


class Model:
    """A model with some."""

    def __init__(self):
        self.count = 0
        self.found = None
        self.config = SHARED

    def count_globally(self):
        global COUNTS
        COUNTS += 1

    def change_shared(self):
        self.config["step"] += 1

    def read_clock(self):
        self.found = time.time()

    def read_date(self):
        self.found = datetime.datetime.now()

    def draw(self):
        self.found = random.random()

    def open_file(self):
        Path("/nowhere").write_text("charged")

    def open_file_and_hide_it(self):
        try:
            self.open_file()
        except BaseException:
            self.found = "nothing"

    def connect(self):
        socket.create_connection(("127.0.0.1", 1))

    def start_thread(self):
        threading.Thread(target=print).start()

    def start_process(self):
        import os

        os.system("true")

    def take_id(self):
        self.found = id(self)

    def iterate_set(self):
        self.found = list({"one", "two", "three", "four", "five", "six"})

    def number_itself(self):
        self.found = next(NUMBERS)

    def add_row(self):
        self.machine.add_transition("later", "a", "b")

    def leave(self):
        sys.exit(3)

    def fail(self):
        raise ValueError("no")


NUMBERS = itertools.count()


def model_with(method, where="before"):
    return lambda: on_two_states(Model(), **{where: method})


REFUSED = {
    "count_globally": "go() changes COUNTS, a global of test_soundness",
    "change_shared": "go() changes config, which all models share",
    "read_clock": "go() calls time.time in Model.read_clock, which is blocked",
    "read_date": "go() calls datetime.now in Model.read_date, which is blocked",
    "draw": "go() calls random.random in Model.draw, which is blocked",
    "open_file": "allow it (--allow files)",
    "open_file_and_hide_it": "allow it (--allow files)",
    "connect": "allow it (--allow sockets)",
    "start_thread": "allow it (--allow threads)",
    "start_process": "go() calls os.system",
    "take_id": "go() sets attribute found in take_id to different values",
    "number_itself": "go() sets attribute found in number_itself to different values",
}


@pytest.mark.parametrize("method", REFUSED)
def test_a_step_that_reaches_further_than_its_model_is_refused(method):
    with pytest.raises(NotRepeatable) as refused:
        adopt(model_with(method)).search()
    text = str(refused.value)
    assert REFUSED[method] in text
    assert "\n" not in text


def make_set_iterator():
    return on_two_states(Model(), before="iterate_set")


def test_another_hash_seed_shows_the_order_of_a_set():
    with pytest.raises(NotRepeatable, match="sets attribute found in iterate_set to different values under another"):
        adopt(make_set_iterator).search()


class Bell:
    """Rings, and counts how often."""

    def __init__(self):
        self.rung = 0

    def __call__(self):
        self.rung += 1

    def ring(self, times=1):
        self.rung += times


def log_to_default(log=[]):  # noqa: B006
    log.append(1)


def count_on_itself():
    count_on_itself.calls = getattr(count_on_itself, "calls", 0) + 1


CALLBACKS = {
    "an object": (Bell, "what Bell is called on"),
    "a method": (lambda: Bell().ring, "what Bell.ring is called on"),
    "a partial": (lambda: functools.partial(Bell().ring, 2), "what Bell.ring is called on"),
    "a default": (lambda: log_to_default, "a default of log_to_default"),
    "a function": (lambda: count_on_itself, r"the attributes of a function \(.*count_on_itself"),
}


@pytest.mark.parametrize("kind", CALLBACKS)
def test_a_callback_that_changes_what_it_is_called_on_is_refused(kind):
    make, said = CALLBACKS[kind]
    with pytest.raises(NotRepeatable, match=rf"go\(\) changes {said}"):
        adopt(lambda: on_two_states(Blank(), before=make())).search()


def test_a_callback_on_an_object_that_cannot_be_read_is_refused():
    with pytest.raises(ConfigurationError, match=r"callback = .*is called on a _thread.lock, which cannot be read"):
        adopt(lambda: on_two_states(Blank(), before=threading.Event().set))


LEFT, RIGHT = socket.socketpair()


class Wired:
    """Writes to a socket that is open."""

    def send(self):
        LEFT.send(b"charged")


def test_a_socket_that_is_open_already_is_out_of_reach_too():
    with pytest.raises(NotRepeatable, match=r"Wired.send reaches LEFT, which is open; .*allow it \(--allow sockets\)"):
        adopt(lambda: on_two_states(Wired(), before="send"))
    RIGHT.setblocking(False)
    with pytest.raises(BlockingIOError):
        RIGHT.recv(10)
    LEFT.close()
    RIGHT.close()


def test_an_object_that_is_copied_in_a_way_of_its_own_is_refused():
    class Odd:
        def __init__(self):
            self.count = 0

        def __deepcopy__(self, memo):
            return Odd()

    class Holder:
        def __init__(self):
            self.odd = Odd()

        def more(self):
            self.odd.count += 1

    with pytest.raises(NotRepeatable, match="attribute odd is another one after it was set on a fresh model"):
        adopt(lambda: on_two_states(Holder(), before="more")).search()


def test_aliases_models_and_machines_within_a_value_are_kept():
    class Item:
        def __init__(self, owner):
            self.owner, self.count = owner, 0

    class Cart:
        def __init__(self):
            self.items = [Item(self)]
            self.alias = self.items
            self.event = None

        def more(self):
            self.alias[0].count = (self.items[0].count + 1) % 3
            assert self.items[0].owner is self
            assert self.alias is self.items

    assert adopt(lambda: on_two_states(Cart(), before="more")).search().found.states == 6


def test_an_attribute_that_a_closure_holds_as_well_is_refused():
    def make():
        model = Blank()
        model.log = log = []
        return on_two_states(model, before=lambda: log.append(1))

    with pytest.raises(NotRepeatable, match="log is an attribute of the model, and the closure of"):
        adopt(make)


def test_rows_that_appear_later_are_refused():
    def make():
        model = Model()
        transitions = [{"trigger": "go", "source": "a", "dest": "b", "before": "add_row"}]
        model.machine = Machine(model, states=["a", "b"], initial="a", transitions=transitions)
        return model

    with pytest.raises(NotRepeatable, match=r"go\(\) adds or removes states, transitions, callbacks"):
        adopt(make).search()


def test_a_row_that_runs_from_another_state_than_its_source_is_said():
    class Hasty:
        def hurry(self):
            self.swerve()

    def make():
        model = Hasty()
        transitions = [{"trigger": "go", "source": "a", "dest": "b", "before": "hurry"}, ["swerve", "a", "c"]]
        Machine(model, states=["a", "b", "c"], initial="a", auto_transitions=False, transitions=transitions)
        return model

    assert list(adopt(make).search().found.odd) == ["row 0 (go: a -> b) ran from c, where a callback had gone"]


def test_an_exception_is_a_counterexample_and_the_state_after_it_is_read_back():
    adopted = adopt(model_with("fail", "after"))
    broken = adopted.search().found.broken
    assert broken is not None
    assert (broken.name, broken.why) == ("raises ValueError", "no")
    assert dict(broken.legs[0].outcome.value.parts)["state"] == b"str:'b';"
    expected = adopt(model_with("fail", "after"), raises=[ValueError]).search()
    assert expected.is_held
    assert expected.found.expected == {"ValueError": 1}


def test_a_port_records_calls_and_they_are_effects():
    class Customer:
        def __init__(self):
            self.card = socket.socket

        def charge(self):
            with self.card:
                if self.card.charge(5, currency="EUR"):
                    self.card.note("charged")

    adopted = adopt(
        lambda: on_two_states(Customer(), before="charge"),
        ports={"card": {"charge": True}},
        invariants=["state == 'a'"],
    )
    broken = adopted.search().found.broken
    assert broken is not None
    said = [str(one) for one in broken.legs[0].outcome.effects]
    assert said == ["card.charge(5, currency='EUR')", "card.note('charged')"]


def test_a_task_that_is_left_running_and_one_that_never_ends_are_named():
    import asyncio

    class Leaves:
        async def go_on(self):
            self.task = None
            asyncio.get_running_loop().create_task(asyncio.sleep(1))

    class Waits:
        async def go_on(self):
            await asyncio.get_running_loop().create_future()

    def make(kind):
        model = kind()
        transitions = [{"trigger": "go", "source": "a", "dest": "b", "before": "go_on"}]
        AsyncMachine(model, states=["a", "b"], initial="a", transitions=transitions)
        return model

    with pytest.raises(NotRepeatable, match=r"go\(\) leaves a task running \(sleep\): await it"):
        adopt(lambda: make(Leaves)).search()
    broken = adopt(lambda: make(Waits)).search().found.broken
    assert broken is not None
    assert broken.name == "raises NeverEnds"


def test_the_address_of_an_object_in_a_message_or_an_argument_is_no_difference():
    class Caller:
        def __init__(self):
            self.card = print

        def charge(self):
            self.card(self)
            raise ValueError(f"{self} has no card")

    adopted = adopt(lambda: on_two_states(Caller(), before="charge"), ports=["card"])
    broken = adopted.search().found.broken
    assert broken is not None
    assert "0x" not in broken.why
    assert str(broken.legs[0].outcome.effects[0]).startswith("card(<test_soundness.")


def test_key_says_what_identifies_a_value():
    class Counter:
        def __init__(self):
            self.count = 0

        def more(self):
            self.count += 1

    make = lambda: on_two_states(Counter(), before="more")  # noqa: E731
    assert adopt(make, key=lambda model: (model.state, model.count % 2)).search().found.states == 4
    assert not adopt(make).search(states_max=50).is_complete


TRIGGERS = ("t", "u")
GUARDS = ("g0", "g1")
NESTED_ORDER_NUMBERS = count()

KINDS = {"*": "wildcard", "=": "reflexive", None: "internal"}
CONSTRUCTS = {
    *("depth 2", "depth 3", "transitions", "row of a parent first", "initial", "parallel", "no table", "enum", "."),
    *(*KINDS.values(), "conditions", "unless", "after", "queued", "auto_transitions", "refuse", "ignore", "row"),
}
"""Each is in one draw of twenty at least; `transitions` are those of a nested state, `after` triggers in a callback."""

SEEN: set[str | None] = set()
"""Constructs of this draw."""


class Dotted(NestedState):
    separator = "."


class DottedMachine(HierarchicalMachine):
    state_cls = Dotted


class NestedOrderModel:
    """Writes down which rows ran; `fire_x` triggers x, twice a call at most."""

    def __init__(self):
        self.rows, self.held, self.left = [], dict.fromkeys(GUARDS, False), 0

    def __getattr__(self, name):
        kind, _, rest = name.partition("_")
        found = {"row": partial(self.rows.append, name), "fire": partial(self.fire, rest), **self.held}.get(kind)
        if found is None:
            raise AttributeError(name)
        return found if callable(found) else lambda: found

    def fire(self, name):
        if self.left:
            self.left -= 1
            self.trigger(name)


def list_paths(states):
    names = [(getattr(one["name"], "name", one["name"]), one) for one in states]
    return [
        (name, *rest) for name, one in names for rest in [(), *list_paths(one.get("children", one.get("parallel", ())))]
    ]


@st.composite
def drawn_states(draw, depth, separator, has_members):
    """Each level has names of its own: `transitions` takes a child for a state at the top that has its name."""
    names = ("pqr", "xyz", "abc")[depth - 1][: draw(st.integers(1 if depth < 3 else 2, 3 if depth > 1 else 2))]
    members = list(enum.Enum("Members", list(names))) if has_members else names
    states = [
        {"name": one, "ignore_invalid_triggers": draw(st.sampled_from([None, None, None, True]))} for one in members
    ]
    for one in states if depth > 1 else ():
        if draw(st.integers(0, 2)):
            way = draw(st.sampled_from(["children", "initial", "initial", "parallel"]))
            children = draw(drawn_states(depth - 1, separator, has_members))
            one["parallel" if way == "parallel" else "children"] = children
            one["transitions"] = draw(st.lists(drawn_rows(list_paths(children), separator), max_size=2))
            one |= {"initial": children[0]["name"]} if way == "initial" else {}
            SEEN.update([way, *(key for key in one if one[key])])
    return states


@st.composite
def drawn_rows(draw, paths, separator, triggers=TRIGGERS):
    """A row among states of a scope."""
    some = st.sampled_from([separator.join(path) for path in paths])
    row = {
        "trigger": draw(st.sampled_from(triggers)),
        "source": draw(st.one_of(*[some] * 6, st.just("*"))),
        "dest": draw(st.one_of(st.sampled_from(["=", None]), some, some, some)),
        "conditions": draw(st.lists(st.sampled_from(GUARDS), max_size=1)),
        "unless": draw(st.lists(st.sampled_from(GUARDS), max_size=1)),
        "before": f"row_{next(NESTED_ORDER_NUMBERS)}",
        "after": draw(st.sampled_from([None, None, *(f"fire_{one}" for one in TRIGGERS)])),
    }
    SEEN.update([KINDS.get(row["source"]), KINDS.get(row["dest"]), *(key for key in row if row[key])])
    return row


@st.composite
def declarations(draw):
    """(separator, what a machine is made with, calls with the values of guards)."""
    SEEN.clear()
    separator, has_members = draw(st.sampled_from("__.")), draw(st.integers(0, 2)) == 0
    states = draw(drawn_states(draw(st.sampled_from([1, 2, 3, 3])), separator, has_members))
    paths = list_paths(states)
    child = draw(st.sampled_from(paths))
    pair = [
        {**draw(drawn_rows(paths, separator, "t")), "source": separator.join(one) or "*"} for one in (child, child[:-1])
    ]
    others = [draw(drawn_rows(paths, separator, "u")), *draw(st.lists(drawn_rows(paths, separator), max_size=3))]
    given = {
        "states": states,
        "transitions": draw(st.permutations([*pair, *others])),
        "initial": separator.join(draw(st.sampled_from([path for path in paths if len(path) == 1 or not has_members]))),
        "queued": draw(st.booleans()),
        "auto_transitions": draw(st.integers(0, 3)) == 0,
        "ignore_invalid_triggers": draw(st.sampled_from([None, True])),
    }
    depth = max(map(len, paths))
    SEEN.update([f"depth {depth}", separator if depth > 1 else None, "enum" if has_members else None])
    SEEN.update(key for key in ("queued", "auto_transitions") if given[key])
    SEEN.update(
        {"row of a parent first" for one, other in combinations(given["transitions"], 2) if is_behind(one, other)}
    )
    call = st.tuples(st.sampled_from(TRIGGERS), st.booleans(), st.booleans())
    return separator, given, draw(st.lists(call, min_size=3, max_size=9))


def is_behind(row, later):
    """Whether the live machine asks the later row first, as it is of a nested state."""
    outer, inner = row["source"], later["source"]
    return row["trigger"] == later["trigger"] and inner != outer and inner.startswith(outer)


def make_machine(separator, given):
    """The model and the machine of a declaration, anew each time."""
    is_flat = all(len(path) == 1 for path in list_paths(given["states"]))
    kind = Machine if is_flat else DottedMachine if separator == "." else HierarchicalMachine
    model = NestedOrderModel()
    return model, kind(model, **deepcopy(given))


def is_parallel_at(separator, given, name):
    """Whether the live machine is in several states at once where it has gone to a state."""
    model, _ = make_machine(separator, given)
    model.to(name)
    return isinstance(model.state, list)


def is_anywhere_parallel(separator, given):
    """Whether the live machine begins in several states at once, or a row leads to such."""
    model, machine = make_machine(separator, given)
    ends = {prefix + one.dest for _, prefix, one in walk_transitions(machine) if one.dest}
    there = ends & {separator.join(path) for path in list_paths(given["states"])}
    return isinstance(model.state, list) or any(is_parallel_at(separator, given, name) for name in there)


def predict(table, fsm, state, trigger, held, left):
    """(state, rows, kind of the last line) that the table says of a call, and of the calls in its callbacks."""
    rows = []
    while trigger:
        symbol = Symbol(table.events.index(trigger), tuple(held.items()))
        trigger, lines = "", table.cells.get((symbol.event, state), ())
        line = next((one for one in lines if one.kind != "row" or evaluate_guard(one.guard, held) == 1), None)
        kind, dest = (line.kind, line.dest) if line else ("", state)
        assert table.list_ends(symbol, state) == ([] if kind == "refuse" else [dest])
        if kind != "row":
            return state, rows, kind
        state, actions = line.dest, fsm.lines[line.number].do.__name__.split(", ")
        rows += actions[:1]
        if len(actions) > 1 and left:
            left, trigger = left - 1, actions[1].removeprefix("fire_")
    return state, rows, "row"


def compare(separator, given, calls):
    """Build both, and call both."""
    model, machine = make_machine(separator, given)
    subject = read_subject(model)
    if "parallel" in SEEN and is_anywhere_parallel(separator, given):
        SEEN.add("no table")
        with pytest.raises(ConfigurationError, match="parallel states"):
            build_fsm(subject, 0)
        return
    fsm = build_fsm(subject, 0)
    table = read_table(fsm, "drawn")
    for trigger, *held in calls:
        model.held, model.rows, model.left = dict(zip(GUARDS, held, strict=True)), [], 2
        before = table.states.index(name_state(machine, model.state))
        state, rows, kind = predict(table, fsm, before, trigger, model.held, 2)
        SEEN.add(kind)
        try:
            model.trigger(trigger)
        except (MachineError, AttributeError):  # the latter where a callback of a nested scope calls
            assert kind == "refuse"
        else:
            assert kind != "refuse"
        assert (name_state(machine, model.state), model.rows) == (table.states[state], rows)


@pytest.mark.parametrize("draws", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_table_decides_as_the_live_machine(draws, caplog):
    caplog.set_level(logging.CRITICAL, "transitions")
    counts = Counter()

    @settings(max_examples=draws, suppress_health_check=list(HealthCheck))
    @given(declarations())
    def compare_drawn(drawn):
        compare(*drawn)
        for one in SEEN & CONSTRUCTS:
            event(one)
        counts.update(["draws", *(SEEN & CONSTRUCTS)])

    compare_drawn()
    assert {one: counts[one] for one in CONSTRUCTS if counts[one] * 20 < counts["draws"]} == {}
