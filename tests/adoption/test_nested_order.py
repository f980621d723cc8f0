"""The table of an adopted machine decides as the live machine does, for random machines nested in many ways."""

from __future__ import annotations

import enum
from collections import Counter
from itertools import combinations
from typing import Any

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

KINDS = {"*": "wildcard", "=": "reflexive", None: "internal"}
CONSTRUCTS = (
    *(
        "depth 2",
        "depth 3",
        "row of a scope",
        "row of a parent first",
        "initial",
        "parallel",
        "no table",
        "enum",
        "dotted",
    ),
    *(
        "internal",
        "reflexive",
        "wildcard",
        "conditions",
        "unless",
        "after",
        "queued",
        "auto",
        "refuse",
        "ignore",
        "row",
    ),
)
"""Each is in one draw of twenty at least; `after` is a trigger in a callback."""


class Dotted(NestedState):
    separator = "."


class DottedMachine(HierarchicalMachine):
    state_cls = Dotted


class Model:
    """Writes down which rows ran; `fire_x` triggers x, twice a call at most."""

    def __init__(self, actions):
        self.rows, self.held, self.left = [], dict.fromkeys(GUARDS, False), 0
        for name in actions:
            setattr(self, name, lambda name=name: self.rows.append(name))
        for name in GUARDS:
            setattr(self, name, lambda name=name: self.held[name])
        for name in TRIGGERS:
            setattr(self, f"fire_{name}", lambda name=name: self.fire(name))

    def fire(self, name):
        if self.left:
            self.left -= 1
            self.trigger(name)


@st.composite
def trees(draw, depth):
    """States: name -> (children, how they are entered, whether it ignores, rows of the scope).

    Each level has names of its own, since `transitions` takes a child for a state at the top that has its name.
    """
    names = ("pqr", "xyz", "abc")[depth - 1][: draw(st.integers(1 if depth < 3 else 2, 3 if depth > 1 else 2))]
    made = {}
    for name in names:
        children = draw(trees(depth - 1)) if depth > 1 and draw(st.integers(0, 2)) else {}
        way = draw(st.sampled_from(["initial", "initial", "none", "parallel"])) if children else "none"
        rows = draw(st.lists(drawn_rows(list_paths(children)), max_size=2)) if children else []
        made[name] = (children, way, draw(st.sampled_from([None, None, None, True])), rows)
    return made


def list_paths(tree):
    return [(name, *rest) for name, node in tree.items() for rest in [(), *list_paths(node[0])]]


@st.composite
def drawn_rows(draw, paths, triggers=TRIGGERS):
    """A row among states of a scope."""
    some = st.sampled_from(paths)
    return {
        "trigger": draw(st.sampled_from(triggers)),
        "source": draw(st.one_of(*[some] * 6, st.just("*"))),
        "dest": draw(st.one_of(st.sampled_from(["=", None]), some, some, some)),
        "conditions": draw(st.lists(st.sampled_from(GUARDS), max_size=1)),
        "unless": draw(st.lists(st.sampled_from(GUARDS), max_size=1)),
        "after": draw(st.sampled_from([None, None, *(f"fire_{one}" for one in TRIGGERS)])),
    }


@st.composite
def declarations(draw):
    tree = draw(trees(draw(st.sampled_from([1, 2, 3, 3]))))
    paths = list_paths(tree)
    child = draw(st.sampled_from(paths))
    each = [{**draw(drawn_rows(paths, ["t"])), "source": source} for source in (child, child[:-1] or "*")]
    return {
        "tree": tree,
        "rows": draw(
            st.permutations([*each, draw(drawn_rows(paths, ["u"])), *draw(st.lists(drawn_rows(paths), max_size=3))])
        ),
        "initial": draw(st.sampled_from(paths)),
        "dotted": draw(st.integers(0, 3)) == 0,
        "enum": draw(st.integers(0, 2)) == 0,
        "queued": draw(st.booleans()),
        "auto": draw(st.integers(0, 3)) == 0,
        "ignores": draw(st.sampled_from([None, None, None, True])),
        "calls": draw(
            st.lists(st.tuples(st.sampled_from(TRIGGERS), st.booleans(), st.booleans()), min_size=3, max_size=9)
        ),
    }


class Builder:
    """Makes the live machine of a drawn declaration, anew each time."""

    def __init__(self, drawn):
        self.drawn = drawn
        self.separator = "." if drawn["dotted"] else "_"
        self.members = self.name_members(drawn["tree"], ()) if drawn["enum"] else {}
        self.number, self.seen = 0, {name for name in ("enum", "queued", "auto", "dotted") if drawn[name]}

    def name_members(self, tree, prefix):
        """Path -> member of an enum for each scope."""
        kind = enum.Enum("_".join(("E", *prefix)), {name: "_".join((*prefix, name)) for name in tree})
        found = {(*prefix, one.name): one for one in kind}
        for name, node in tree.items():
            found |= self.name_members(node[0], (*prefix, name)) if node[0] else {}
        return found

    def name(self, path, prefix=()):
        if not isinstance(path, tuple):
            return path
        return self.members[path] if self.members and not prefix else self.separator.join(path)

    def list_rows(self, rows, prefix=()):
        made = []
        for row in rows:
            self.number += 1
            self.seen |= {KINDS.get(row[key]) for key in ("source", "dest")} | {key for key in row if row[key]}
            named = {key: self.name(row[key], prefix) for key in ("source", "dest")}
            made.append({**row, **named, "before": f"row_{self.number}"})
        return made

    def list_states(self, tree, prefix=()):
        states = []
        for name, (children, way, ignores, rows) in tree.items():
            path = (*prefix, name)
            state: dict[str, Any] = {"name": self.members.get(path, name)}
            if ignores is not None:
                state["ignore_invalid_triggers"] = ignores
            if children:
                self.seen |= {way, f"depth {len(path) + 1}", "row of a scope" if rows else None}
                state["parallel" if way == "parallel" else "children"] = self.list_states(children, path)
                state["transitions"] = self.list_rows(rows, path)
            if way == "initial":
                first = next(iter(children))
                state["initial"] = self.members.get((*path, first), first)
            states.append(state)
        return states

    def build(self):
        drawn, self.number = self.drawn, 0
        kind = DottedMachine if drawn["dotted"] else HierarchicalMachine
        if all(not node[0] for node in drawn["tree"].values()):
            kind = Machine
        states, rows = self.list_states(drawn["tree"]), self.list_rows(drawn["rows"])
        model = Model([f"row_{one + 1}" for one in range(self.number)])
        machine = kind(
            model,
            states=states,
            initial=self.name(drawn["initial"]),
            transitions=rows,
            queued=drawn["queued"],
            auto_transitions=drawn["auto"],
            ignore_invalid_triggers=drawn["ignores"],
        )
        return model, machine


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


def is_behind(row, later):
    """Whether the live machine asks the later row first, as it is of a nested state."""
    outer, inner = row["source"], later["source"]
    return row["trigger"] == later["trigger"] and inner != "*" and inner[: len(outer)] == outer != inner


def is_anywhere_parallel(builder, model, machine):
    """Whether the live machine begins in several states at once, or a row leads to such: it is begun there."""
    ends = {prefix + one.dest for _, prefix, one in walk_transitions(machine) if one.dest}
    paths = [path for path in list_paths(builder.drawn["tree"]) if builder.separator.join(path) in ends]
    begun = [Builder({**builder.drawn, "enum": False, "initial": path}).build()[0].state for path in paths]
    return any(isinstance(state, list) for state in (model.state, *begun))


def compare(drawn):
    """Build both, and call both; which constructs there were."""
    builder = Builder(drawn)
    model, machine = builder.build()
    seen = builder.seen | {
        "row of a parent first" for row, one in combinations(drawn["rows"], 2) if is_behind(row, one)
    }
    subject = read_subject(model)
    if "parallel" in seen and is_anywhere_parallel(builder, model, machine):
        with pytest.raises(ConfigurationError, match="parallel states"):
            build_fsm(subject, 0)
        return {*seen, "no table"}
    fsm = build_fsm(subject, 0)
    table = read_table(fsm, "drawn")
    for trigger, *held in drawn["calls"]:
        model.held, model.rows, model.left = dict(zip(GUARDS, held, strict=True)), [], 2
        before = table.states.index(name_state(machine, model.state))
        state, rows, kind = predict(table, fsm, before, trigger, model.held, 2)
        raised = False
        try:
            model.trigger(trigger)
        except (MachineError, AttributeError):  # the latter where a callback of a nested scope calls
            raised = True
        assert (name_state(machine, model.state), model.rows, raised) == (table.states[state], rows, kind == "refuse")
        seen.add(kind)
    return seen


@pytest.mark.parametrize("draws", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_table_decides_as_the_live_machine(draws):
    counts = Counter()

    @settings(max_examples=draws, suppress_health_check=list(HealthCheck))
    @given(declarations())
    def compare_drawn(drawn):
        counts["draws"] += 1
        for one in compare(drawn):
            event(one)
            counts[one] += 1

    compare_drawn()
    assert {one: counts[one] for one in CONSTRUCTS if counts[one] * 20 < counts["draws"]} == {}
