"""Turn check: what a machine does follows its step, and what it is answered it has asked for.

A turn of a node is a step, the steps of the child machines in it, and what comes of them: messages, requests, and what
the application is told.  All of it has the time of the step.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import numpy as np

from statemachines.kernel import Answer, Message, name_of
from statemachines_reports.columns import STEPS, Columns, Segment
from statemachines_reports.neutral.row_groups import group_by_text, group_rows
from statemachines_reports.neutral.simulated_run import is_simulated, runs_where
from statemachines_reports.protocol import Check, Verdict, verdict
from statemachines_reports.trace_roles import TraceRoles

EFFECTS: Final = ("send", "tell", "ask")
SAME: Final = (
    "run", "t_ns", "node", "machine", "instance", "kind", "event", "source", "dest", "row", "msg", "key", "term",
    "grant", "first", "last",
)  # fmt: skip
"""Columns in which a row that is there twice is the same."""

WORDS: Final = {
    1: "follows no step of its instance at that time",
    2: "follows no step of its parent at that time",
    3: "is there twice",
    4: "takes an answer, and everything that was asked is answered",
    5: "is without the row that it comes with",
    6: "asks before it has the answer to what it asked before",
    7: "is an event that its parent has not taken at that time",
}


def judge_turns(segment: Segment, roles: Iterable[TraceRoles]) -> Verdict:
    """What is wrong with the turns of a segment.  A run without any step says nothing of turns."""
    columns = segment.columns
    roles = tuple(roles)
    stepped = np.unique(columns["run"][columns.rows_of(*STEPS)])
    looked = columns.rows_of(*STEPS, *EFFECTS)
    looked = looked[np.isin(columns["run"][looked], stepped)]
    words: dict[int, int] = {}
    for code, rows in (
        (1, _find_loose_effects(segment, roles)),
        (2, _find_orphans(segment)),
        (7, _find_changelings(segment, roles)),
        (3, _find_repeated(segment, roles)),
        (4, _find_unasked(segment, roles)),
        (6, _find_hasty(columns, roles)),
        (5, _find_unaccompanied(segment, roles)),
    ):
        words |= dict.fromkeys(rows[np.isin(columns["run"][rows], stepped)].tolist(), code)

    def describe(row: int) -> str:
        what = f"{columns.text('kind', row)} {columns.text('event', row)} of {columns.text('instance', row)}"
        return f"{what} {WORDS[words[row]]}"

    return verdict(columns, len(looked), np.array(sorted(words), np.int64), describe)


def _find_loose_effects(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Effects of instances that take steps, which have not stepped at that time.  An instance that is gone may still be
    spoken for, and a node that lies says what it likes."""
    columns = segment.columns
    lives = group_by_text(columns, columns.rows_of(*STEPS, *EFFECTS), "instance")
    rows = lives.rows
    is_step = columns.is_one_of("kind", STEPS, rows)
    latest = lives.find_latest(is_step)
    ends = np.append(np.flatnonzero(~lives.same)[1:], len(rows)) if len(rows) else np.zeros(0, np.int64)
    steps = np.concatenate(([0], np.cumsum(is_step)))
    life = np.cumsum(~lives.same) - 1
    later = steps[ends][life] > steps[1:] if len(rows) else np.zeros(0, bool)
    has_steps = steps[ends][life] > steps[lives.begin] if len(rows) else later
    loose = has_steps & ~is_step & ((latest < 0) | (columns["t_ns"][rows[latest]] != columns["t_ns"][rows]))
    loose &= later | ~columns.is_one_of("kind", ("send",), rows)
    loose &= np.isin(columns["run"][rows], runs_where(segment, is_simulated))
    found = rows[loose]
    return np.asarray(found[~_is_of_liar(columns, found, tuple(event for one in roles for event in one.lies))])


def _is_of_liar(columns: Columns, rows: np.ndarray, lies: tuple[str, ...]) -> np.ndarray:
    faults = columns.rows_of("fault")
    faults = faults[columns.is_one_of("event", lies, faults)]
    liars = columns["run"][faults] * (len(columns.texts["node"]) + 1) + columns["node"][faults]
    return np.isin(columns["run"][rows] * (len(columns.texts["node"]) + 1) + columns["node"][rows], liars)


def _find_orphans(segment: Segment) -> np.ndarray:
    """Steps of child machines that follow no step of their parent, or of another of its children, at that time."""
    columns = segment.columns
    children = {one.full_name for fsm in segment.lookup.family for one in fsm.children}
    lives = group_by_text(columns, columns.rows_of(*STEPS), "node")
    rows = lives.rows
    names = [*columns.texts["instance"], ""]
    codes = {name: code for code, name in enumerate(dict.fromkeys(name.partition(":")[0] for name in names))}
    parent = np.array([codes[name.partition(":")[0]] for name in names])[columns["instance"][rows]]
    is_child = columns.is_one_of("machine", tuple(children), rows)
    is_child &= np.array([":" in name for name in names])[columns["instance"][rows]]
    follows = lives.same.copy()
    follows[1:] &= (parent[1:] == parent[:-1]) & (columns["t_ns"][rows][1:] == columns["t_ns"][rows][:-1])
    return np.asarray(np.sort(rows[is_child & ~follows]))


def _find_repeated(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Steps that are there twice, one behind the other; some events may come twice at once.  So may messages that came
    at other times, and were kept until then: their steps name no message."""
    columns = segment.columns
    lives = group_by_text(columns, np.arange(columns.rows), "node")
    rows = lives.rows
    same = lives.same.copy()
    for name in SAME:
        same[1:] &= columns[name][rows][1:] == columns[name][rows][:-1]
    found = np.sort(rows[same])
    found = found[columns.is_one_of("kind", STEPS, found)]
    messages = {name_of(one) for fsm in segment.lookup.family for one in fsm.alphabet if issubclass(one, Message)}
    found = found[~(columns.is_one_of("event", tuple(messages), found) & (columns["msg"][found] < 0))]
    return np.asarray(found[~columns.is_one_of("event", tuple(event for one in roles for event in one.repeats), found)])


def _find_unasked(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Steps that take an answer where the instance has asked no more than it was answered before."""
    columns = segment.columns
    partial_answers = {event for one in roles for event in one.partial_answers}
    found = [np.zeros(0, np.int64)]
    machines: dict[str, set[str]] = {}
    for fsm in segment.lookup.family:
        machines[fsm.full_name] = {name_of(one) for one in fsm.alphabet if issubclass(one, Answer)} - partial_answers
    answered = {event for one in machines.values() for event in one}
    groups = [group for one in roles for group in one.requests]
    grouped = {event for _, answers in groups for event in answers}
    asked = {event for asks, _ in groups for event in asks}
    asks = columns.rows_of("ask")
    steps = columns.rows_of(*STEPS)
    steps = steps[columns.is_one_of("event", tuple(answered), steps)]
    codes = len(columns.texts["instance"]) + 1
    asking = columns["run"][asks] * codes + columns["instance"][asks]
    steps = steps[np.isin(columns["run"][steps] * codes + columns["instance"][steps], asking)]
    others = tuple(set(columns.texts["event"]) - asked), tuple(answered - grouped)
    for some, answers in (*groups, others):
        asks_here = asks[columns.is_one_of("event", tuple(some), asks)]
        steps_here = steps[columns.is_one_of("event", tuple(answers), steps)]
        lives = group_by_text(columns, np.sort(np.concatenate((asks_here, steps_here))), "instance")
        open_asks = np.cumsum(np.where(columns.is_one_of("kind", ("ask",), lives.rows), 1, -1))
        if len(open_asks):
            before = np.concatenate(([0], open_asks))[lives.begin]
            over = open_asks - before < 0
            first = np.ones(len(over), bool)
            first[1:] = ~(over[:-1] & lives.same[1:])
            found.append(lives.rows[over & first])
    return np.unique(np.concatenate(found))


def _find_hasty(columns: Columns, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Requests of those that are made one by one, with no step of their instance since the one before."""
    serial = tuple(event for one in roles for event in one.serial)
    asks = columns.rows_of("ask")
    groups = group_by_text(columns, np.sort(np.concatenate((asks, columns.rows_of(*STEPS)))), "instance")
    is_ask = columns.is_one_of("kind", ("ask",), groups.rows)
    answers = columns.is_one_of("kind", ("step",), groups.rows)
    hasty = is_ask & columns.is_one_of("event", serial, groups.rows)
    hasty[1:] &= groups.same[1:] & is_ask[:-1] & ~answers[:-1]
    hasty[:1] = False
    return np.asarray(np.sort(groups.rows[hasty]))


def _find_changelings(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Steps of child machines that take an event which their parent takes, too, and has not taken at that time."""
    columns, lookup = segment.columns, segment.lookup
    taken = {fsm.full_name: {name_of(one) for one in fsm.alphabet} for fsm in lookup.family}
    children = {child.full_name: fsm.full_name for fsm in lookup.family for child in fsm.children}
    rows = columns.rows_of(*STEPS)
    forwarded = tuple(event for one in roles for event in one.forwarded)
    groups = group_by_text(columns, rows, "node")
    rows = groups.rows
    is_child = columns.is_one_of("machine", tuple(children), rows)
    parent = groups.find_latest(~is_child)
    found = [np.zeros(0, np.int64)]
    for child, above in children.items():
        own = columns.is_one_of("machine", (child,), rows)
        own &= columns.is_one_of("event", tuple((taken[child] & taken[above]) - set(forwarded)), rows)
        own &= parent >= 0
        here = np.flatnonzero(own)
        other = columns["event"][rows[parent[here]]] != columns["event"][rows[here]]
        found.append(rows[here[other]])
    return np.sort(np.concatenate(found))


def _find_unaccompanied(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Rows of simulated runs without the row that they come with."""
    columns = segment.columns
    found = [np.zeros(0, np.int64)]
    for one in (one for role in roles for one in role.companions):
        rows = columns.rows_of(one.of[0], event=(one.of[1],))
        needed = [columns.rows_of(kind, event=(event,)) for kind, event in one.needs]
        both = np.concatenate((*needed, rows))
        groups = group_rows(columns, both, (*one.columns, "t_ns", "node", "run"))
        is_own = np.isin(groups.rows, rows)
        found.append(groups.rows[is_own & (groups.find_latest(~is_own) < 0)])
    lone = np.sort(np.concatenate(found))
    judged = np.intersect1d(runs_where(segment, is_simulated), columns["run"][columns.rows_of(*STEPS)])
    return np.asarray(lone[np.isin(columns["run"][lone], judged)])


def turns_check(roles: Iterable[TraceRoles]) -> Check:
    """The check, for protocols with these roles."""
    claim = "what a machine does follows its step, a child steps after its parent, and an answer follows its request"
    return Check("turns", claim, partial(judge_turns, roles=tuple(roles)))
