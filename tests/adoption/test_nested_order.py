"""The table of an adopted machine decides as the live machine does, for random machines nested in many ways."""

from __future__ import annotations

import enum
import logging
from collections import Counter
from copy import deepcopy
from functools import partial
from itertools import combinations, count

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from transitions import Machine, MachineError
from transitions.extensions.nesting import HierarchicalMachine, NestedState

from statemachines.adoption.declared_table import build_fsm
from statemachines.adoption.live_machine import name_state, read_subject, walk_transitions
from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log.machine_table import Symbol, evaluate_guard, read_table

TRIGGERS = ("t", "u")
GUARDS = ("g0", "g1")
NUMBERS = count()

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


class Model:
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
        "before": f"row_{next(NUMBERS)}",
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
    model = Model()
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


@pytest.mark.parametrize("draws", [200, pytest.param(10_000, marks=pytest.mark.long)])
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
