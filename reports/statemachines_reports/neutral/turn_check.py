"""Turn check: what a machine does follows its step, and what it is answered it has asked for.

A turn of a node is a step, the steps of the child machines in it, and what comes of them: messages, requests, and what
the application is told.  All of it has the time of the step.

Requests: what instances ask for, and the steps that take the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from statemachines.kernel import Answer, Message, name_of, node_of
from statemachines_reports.columns import STEPS, Columns, Segment
from statemachines_reports.neutral.row_groups import (
    group_by_text,
    group_kinds,
    group_rows,
    is_of_last_time,
    keep_group_ends,
)
from statemachines_reports.neutral.run_checks import DEATHS, is_simulated, runs_where
from statemachines_reports.protocol import (
    Check,
    CheckVerdict,
    Joint,
    KeptRows,
    TraceRoles,
    all_rows,
    keep_nothing,
    verdict,
)


class RequestAnswers:
    """Requests of one kind and their answers, by instance.  An answer takes a request that is open; one that finds none
    is `unasked`.  `unanswered`: requests that no answer has taken.  `pairs`: places of a request with its answer behind
    it."""

    def __init__(self, columns: Columns, asks: np.ndarray, answers: np.ndarray) -> None:
        lives = group_by_text(columns, np.sort(np.concatenate((asks, answers))), "instance")
        is_ask = columns.is_one_of("kind", ("ask",), lives.rows)
        total = np.cumsum(np.where(is_ask, 1, -1))
        balance = total - np.concatenate(([0], total))[lives.begin] if len(total) else total
        lift = (np.cumsum(~lives.same) - 1) * (len(total) + 1)
        # within an instance: the least balance up to a row, and from the row behind it on
        least = np.minimum.accumulate(np.minimum(balance, 0) - lift) + lift if len(total) else total
        before = np.zeros(len(total), np.int64)
        before[1:] = np.where(lives.same[1:], least[:-1], 0)
        self.unasked = lives.rows[~is_ask & (balance < before)]
        behind = (np.minimum.accumulate((balance + lift)[::-1]) - lift[::-1])[::-1] if len(total) else total
        later = np.full(len(total), len(total) + 1)
        later[:-1] = np.where(lives.same[1:], behind[1:], later[:-1])
        self.unanswered = lives.rows[is_ask & (later >= balance)]
        follows = np.flatnonzero(is_ask[:-1] & ~is_ask[1:] & lives.same[1:])
        _, first = np.unique(columns.groups("instance", lives.rows[follows]), return_index=True)
        self.pairs = np.concatenate((lives.rows[follows[first]], lives.rows[follows[first] + 1]))


def list_requests(segment: Segment, roles: tuple[TraceRoles, ...]) -> list[RequestAnswers]:
    """The requests of each kind that is answered by answers of its own, all others, and once more those among these
    whose answers tell them apart."""
    columns = segment.columns
    partial_answers = {event for one in roles for event in one.partial_answers}
    machines: dict[str, set[str]] = {}
    for fsm in segment.lookup.family:
        machines[fsm.full_name] = {name_of(one) for one in fsm.alphabet if issubclass(one, Answer)} - partial_answers
    answered = {event for one in machines.values() for event in one}
    groups = [group for one in roles for group in one.requests]
    grouped = {event for _, answers in groups for event in answers}
    asked = {event for asks, _ in groups for event in asks}
    asks, steps = columns.rows_of("ask"), columns.rows_of(*STEPS, event=tuple(answered | grouped))
    own = [group for one in roles for group in one.answers]
    others = tuple(set(columns.texts["event"]) - asked), tuple(answered - grouped)
    return [
        RequestAnswers(
            columns,
            asks[columns.is_one_of("event", tuple(some), asks)],
            steps[columns.is_one_of("event", tuple(answers), steps)],
        )
        for some, answers in (*groups, others, *own)
    ]


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
    8: "is at another node than its instance",
    9: "comes after the death of its process",
    10: "goes to a service that does not take it",
}


def judge_turns(segment: Segment, roles: Iterable[TraceRoles]) -> CheckVerdict:
    """What is wrong with the turns of a segment.  A run without any step says nothing of turns."""
    columns = segment.columns
    roles = tuple(roles)
    stepped = np.unique(columns["run"][columns.rows_of(*STEPS)])
    words: dict[int, int] = {}
    for code, turn in TURNS.items():
        rows = turn.find(segment, roles)
        words |= dict.fromkeys(rows[np.isin(columns["run"][rows], stepped)].tolist(), code)
    looked = columns.rows_of(*STEPS, *EFFECTS)
    checked = int(np.isin(columns["run"][looked], stepped).sum())
    return verdict(columns, checked, np.array(sorted(words), np.int64), lambda row: _say(columns, row, words[row]))


def _say(columns: Columns, row: int, code: int) -> str:
    what = f"{columns.text('kind', row)} {columns.text('event', row)} of {columns.text('instance', row)}"
    return f"{what} {WORDS[code]}"


def _joint_of(code: int, roles: tuple[TraceRoles, ...]) -> Joint:
    """How one thing that may be wrong is judged where a run is cut."""
    turn = TURNS[code]

    def judge(segment: Segment) -> CheckVerdict:
        columns = segment.columns
        rows = np.unique(turn.find(segment, roles))
        looked = len(columns.rows_of(*STEPS, *EFFECTS))
        return verdict(columns, looked, rows, lambda row: _say(columns, row, code))

    return Joint(judge, lambda segment: turn.keep(segment, roles))


class _Effects:
    """Steps and effects by their instance; `apart`: places of effects that have not the time of the latest step.

    An effect that has the time of the effect before it is apart where that one is, so few are looked at one by one.
    """

    def __init__(self, columns: Columns) -> None:
        groups = group_kinds(columns, (*STEPS, *EFFECTS), "instance")
        self.rows = groups.rows
        is_step = columns.is_one_of("kind", STEPS, self.rows)
        self._steps = np.flatnonzero(is_step)
        self._bounds = np.append(np.flatnonzero(~groups.same), len(self.rows))
        t_ns = columns["t_ns"][self.rows]
        is_head = is_step | ~groups.same
        is_head[1:] |= t_ns[1:] != t_ns[:-1]
        heads = np.append(np.flatnonzero(is_head), len(self.rows))
        number = np.flatnonzero(~is_step[heads[:-1]])
        latest = self.find_latest(heads[number])
        number = number[(latest < 0) | (t_ns[latest] != t_ns[heads[number]])]
        lengths = heads[number + 1] - heads[number]
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        self.apart = np.repeat(heads[number], lengths) + offsets

    def find_latest(self, places: np.ndarray) -> np.ndarray:
        """The place of the latest step of the instance before each of these; -1: there is none."""
        begin = self._bounds[np.searchsorted(self._bounds, places, "right") - 1]
        steps = np.append(-1, self._steps)[np.searchsorted(self._steps, places)]
        return np.where(steps >= begin, steps, -1)

    def count_steps(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many steps the instance of each has, and how many of them are later."""
        number = np.searchsorted(self._bounds, places, "right")
        begin, here, end = (
            np.searchsorted(self._steps, at) for at in (self._bounds[number - 1], places, self._bounds[number])
        )
        return end - begin, end - here


def _find_loose_effects(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Effects of instances that take steps, which have not stepped at that time.  An instance that is gone may still be
    spoken for, a node that lies says what it likes, and a host sends what is `unstepped`."""
    columns = segment.columns
    effects = _Effects(columns)
    rows = effects.rows[effects.apart]
    steps, later = effects.count_steps(effects.apart)
    loose = (steps > 0) & ((later > 0) | ~columns.is_one_of("kind", ("send",), rows))
    loose &= np.isin(columns["run"][rows], runs_where(segment, is_simulated))
    loose &= ~columns.is_one_of("event", tuple(event for one in roles for event in one.unstepped), rows)
    found = rows[loose]
    return np.asarray(found[~_is_of_liar(columns, found, _lies_of(roles))])


def _keep_loose_effects(segment: Segment, roles: tuple[TraceRoles, ...]) -> KeptRows:
    """Effects apart from a step are judged at the end, when it is known who lies, and who steps no more."""
    columns = segment.columns
    effects = _Effects(columns)
    apart = effects.apart
    steps = keep_group_ends(columns, columns.rows_of(*STEPS), "instance").context
    before = effects.find_latest(apart)
    lies = columns.rows_of("fault", event=_lies_of(roles)) if _lies_of(roles) else steps[:0]
    return KeptRows(effects.rows[apart], np.concatenate((steps, effects.rows[before[before >= 0]], lies)))


def _lies_of(roles: tuple[TraceRoles, ...]) -> tuple[str, ...]:
    return tuple(event for one in roles for event in one.lies)


def _is_of_liar(columns: Columns, rows: np.ndarray, lies: tuple[str, ...]) -> np.ndarray:
    liars = columns.groups("node", columns.rows_of("fault", event=lies)) if lies else ()
    return np.isin(columns.groups("node", rows), liars)


def _find_orphans(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Steps of child machines that follow no step of their parent, or of another of its children, at that time."""
    columns = segment.columns
    children = {one.full_name for fsm in segment.lookup.family for one in fsm.children}
    groups = group_kinds(columns, STEPS, "node")
    names = [*columns.texts["instance"], ""]
    codes = {name: code for code, name in enumerate(dict.fromkeys(name.partition(":")[0] for name in names))}
    parents = np.array([codes[name.partition(":")[0]] for name in names])
    places = np.flatnonzero(columns.is_one_of("machine", tuple(children), groups.rows))
    rows, before = groups.rows[places], groups.rows[places - 1]
    instance, t_ns = columns["instance"], columns["t_ns"]
    follows = groups.same[places] & (t_ns[rows] == t_ns[before])
    follows &= parents[instance[rows]] == parents[instance[before]]
    is_child = np.array([":" in name for name in names])[instance[rows]]
    return np.asarray(np.sort(rows[is_child & ~follows]))


def _find_repeated(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Steps that are there twice, one behind the other.  Some events may come twice at once.  So may messages that
    came at other times, and were kept until then: their steps name no message.  So may timers of several children,
    which their parent takes, and whose rows name no child.  So may answers: one that is there twice is one that nobody
    asked for."""
    columns = segment.columns
    groups = group_kinds(columns, STEPS, "node")
    places = np.flatnonzero(groups.same)
    for name in SAME:
        values = columns[name]
        places = places[values[groups.rows[places]] == values[groups.rows[places - 1]]]
    node, rows, before = columns["node"], groups.rows[places], groups.rows[places - 1]
    next_to = [not (node[one + 1 : row] == node[row]).any() for one, row in zip(before, rows, strict=True)]
    found = np.sort(rows[np.array(next_to, bool)])
    alphabet = {one for fsm in segment.lookup.family for one in fsm.alphabet}
    messages = {name_of(one) for one in alphabet if issubclass(one, Message)}
    answers = tuple({name_of(one) for one in alphabet if issubclass(one, Answer)})
    found = found[~columns.is_one_of("event", answers, found)]
    found = found[~(columns.is_one_of("event", tuple(messages), found) & (columns["msg"][found] < 0))]
    for fsm in segment.lookup.family:
        timers = tuple(name_of(timer.event) for child in fsm.children for timer in child.timers)
        found = found[
            ~(columns.is_one_of("machine", (fsm.full_name,), found) & columns.is_one_of("event", timers, found))
        ]
    return np.asarray(found[~columns.is_one_of("event", tuple(event for one in roles for event in one.repeats), found)])


def _find_unasked(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Steps that take an answer where everything that the instance has asked is answered; one that never asks is not
    judged."""
    columns = segment.columns
    found = np.unique(np.concatenate([one.unasked for one in list_requests(segment, roles)]))
    asking = columns.groups("instance", columns.rows_of("ask"))
    return np.asarray(found[np.isin(columns.groups("instance", found), asking)])


def _keep_requests(segment: Segment, roles: tuple[TraceRoles, ...]) -> KeptRows:
    """Requests that are open, answers that found none, and of each instance that asks a request with its answer."""
    found = list_requests(segment, roles)
    context = [rows for one in found for rows in (one.unanswered, one.pairs)]
    return KeptRows(np.concatenate([one.unasked for one in found]), np.unique(np.concatenate(context)))


def _find_hasty(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Requests of those that are made one by one, with no step of their instance since the one before."""
    columns = segment.columns
    serial = tuple(event for one in roles for event in one.serial)
    asks_serially = np.zeros(len(columns.texts["instance"]) + 1, bool)
    asks_serially[columns["instance"][columns.rows_of("ask", event=serial)]] = bool(serial)
    rows = columns.rows_of(*STEPS, "ask")
    groups = group_by_text(columns, rows[asks_serially[columns["instance"][rows]]], "instance")
    is_ask = columns.is_one_of("kind", ("ask",), groups.rows)
    hasty = is_ask & columns.is_one_of("event", serial, groups.rows)
    hasty[1:] &= groups.same[1:] & is_ask[:-1]
    hasty[:1] = False
    return np.asarray(np.sort(groups.rows[hasty]))


def _find_changelings(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Steps of child machines that take an event which their parent takes, too, and has not taken at that time."""
    columns, lookup = segment.columns, segment.lookup
    taken = {fsm.full_name: {name_of(one) for one in fsm.alphabet} for fsm in lookup.family}
    children = {child.full_name: fsm.full_name for fsm in lookup.family for child in fsm.children}
    forwarded = tuple(event for one in roles for event in one.forwarded)
    groups = group_kinds(columns, STEPS, "node")
    rows = groups.rows
    is_child = columns.is_one_of("machine", tuple(children), rows)
    parent = groups.find_latest(~is_child)
    places = np.flatnonzero(is_child & (parent >= 0))
    found = [np.zeros(0, np.int64)]
    for child, above in children.items():
        here = places[columns.is_one_of("machine", (child,), rows[places])]
        events = tuple((taken[child] & taken[above]) - set(forwarded))
        here = here[columns.is_one_of("event", events, rows[here])]
        other = columns["event"][rows[parent[here]]] != columns["event"][rows[here]]
        found.append(rows[here[other]])
    return np.sort(np.concatenate(found))


def _keep_parents(segment: Segment, roles: tuple[TraceRoles, ...]) -> KeptRows:
    """Steps of children before any of a parent in their node, and the last of a parent."""
    columns = segment.columns
    children = tuple({child.full_name for fsm in segment.lookup.family for child in fsm.children})
    groups = group_kinds(columns, STEPS, "node")
    is_child = columns.is_one_of("machine", children, groups.rows)
    parents = np.sort(groups.rows[~is_child])
    open_rows = groups.rows[is_child & (groups.find_latest(~is_child) < 0)]
    return KeptRows(open_rows, keep_group_ends(columns, parents, "node").context)


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
    lone = np.unique(np.concatenate(found))
    return np.asarray(lone[np.isin(columns["run"][lone], runs_where(segment, is_simulated))])


def _keep_companions(segment: Segment, roles: tuple[TraceRoles, ...]) -> KeptRows:
    """Rows that are without the one that they come with, and those of the last time, with which others may come."""
    columns = segment.columns
    found = [
        columns.rows_of(kind, event=(event,)) for role in roles for one in role.companions for kind, event in one.needs
    ]
    needed = np.unique(np.concatenate((np.zeros(0, np.int64), *found)))
    return KeptRows(_find_unaccompanied(segment, roles), needed[is_of_last_time(columns, needed)])


def _find_displaced(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Steps and effects at another node than that of their instance."""
    columns = segment.columns
    rows = columns.rows_of(*STEPS, *EFFECTS)
    nodes = {text: code for code, text in enumerate(columns.texts["node"])}
    own = [nodes.get(node_of(text), -1) if "~" in text else -2 for text in columns.texts["instance"]]
    expected = np.array([*own, -2])[columns["instance"][rows]]
    return np.asarray(rows[(expected != -2) & (expected != columns["node"][rows])])


def _find_undead(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Of each instance of a simulated run the first step or effect after a death of its node, where it has one before
    that death."""
    columns = segment.columns
    deaths = columns.rows_of("fault", event=DEATHS)
    if not len(deaths):
        return deaths
    groups = group_kinds(columns, (*STEPS, *EFFECTS), "instance")
    passed = np.repeat(np.arange(len(deaths) + 1, dtype=np.int32), np.diff(deaths, prepend=0, append=columns.rows))
    passed = passed[groups.rows]
    places = np.flatnonzero(groups.same[1:] & (passed[1:] != passed[:-1])) + 1
    rows, before = groups.rows[places], groups.rows[places - 1]
    is_life = np.array(["~" in text for text in columns.texts["instance"]] + [False])[columns["instance"][rows]]
    ends = np.cumsum([count for _, count in columns.runs()])

    def place(rows: np.ndarray) -> np.ndarray:
        run = np.searchsorted(ends, rows, "right")
        return np.asarray((run * (len(columns.texts["node"]) + 1) + columns["node"][rows]) * columns.rows)

    died = np.sort(place(deaths) + deaths)
    is_here = np.searchsorted(died, place(rows)) == np.searchsorted(died, place(before))
    is_after = np.searchsorted(died, place(rows) + rows) > np.searchsorted(died, place(before) + before)
    found = np.sort(rows[is_life & is_here & is_after])
    return np.asarray(found[np.isin(columns["run"][found], runs_where(segment, is_simulated))])


def _keep_lives(segment: Segment, roles: tuple[TraceRoles, ...]) -> KeptRows:
    """The ends of each instance, and all deaths."""
    columns = segment.columns
    kept = keep_group_ends(columns, columns.rows_of(*STEPS, *EFFECTS), "instance")
    return KeptRows(kept.open, np.concatenate((kept.context, columns.rows_of("fault", event=DEATHS))))


def _find_misdirected(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """Requests to another service than the one that takes them."""
    columns = segment.columns
    takers: dict[str, set[str]] = {}
    for service, events in (one for role in roles for one in role.services.items()):
        for event in events:
            takers.setdefault(event, set()).add(service)
    asks = columns.rows_of("ask")
    found = [np.zeros(0, np.int64)]
    for event, services in takers.items():
        rows = asks[columns.is_one_of("event", (event,), asks)]
        found.append(rows[~columns.is_one_of("peer", tuple(services), rows)])
    return np.sort(np.concatenate(found))


def _keep_ends(by: str, *kinds: str) -> Callable[[Segment, tuple[TraceRoles, ...]], KeptRows]:
    return lambda segment, roles: keep_group_ends(segment.columns, segment.columns.rows_of(*kinds), by)


class TurnRule(NamedTuple):
    """One thing that may be wrong with turns: which rows are, and which a part of a run keeps."""

    find: Callable[[Segment, tuple[TraceRoles, ...]], np.ndarray]
    keep: Callable[[Segment, tuple[TraceRoles, ...]], KeptRows] = lambda segment, roles: keep_nothing(segment)


TURNS: Final = {
    1: TurnRule(_find_loose_effects, _keep_loose_effects),
    2: TurnRule(_find_orphans, _keep_ends("node", *STEPS)),
    7: TurnRule(_find_changelings, _keep_parents),
    3: TurnRule(_find_repeated, lambda segment, roles: keep_group_ends(segment.columns, all_rows(segment), "node")),
    4: TurnRule(_find_unasked, _keep_requests),
    6: TurnRule(_find_hasty, _keep_ends("instance", *STEPS, "ask")),
    5: TurnRule(_find_unaccompanied, _keep_companions),
    8: TurnRule(_find_displaced),
    9: TurnRule(_find_undead, _keep_lives),
    10: TurnRule(_find_misdirected),
}
"""By their words; of a row with which several things are wrong the last one is said."""


def turns_check(roles: Iterable[TraceRoles]) -> Check:
    """The check, for protocols with these roles."""
    claim = "what a machine does follows its step, a child steps after its parent, and an answer follows its request"
    roles = tuple(roles)
    joints = tuple(_joint_of(code, roles) for code in TURNS)
    return Check("turns", claim, partial(judge_turns, roles=roles), joints=joints, stepped=True)
