"""Requests: what instances ask for, and the steps that take the answers."""

from __future__ import annotations

import numpy as np

from statemachines.kernel import Answer, name_of
from statemachines_reports.columns import STEPS, Columns, Segment
from statemachines_reports.neutral.row_groups import group_by_text
from statemachines_reports.trace_roles import TraceRoles


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
        _, first = np.unique(
            columns["run"][lives.rows[follows]] * (len(columns.texts["instance"]) + 1)
            + columns["instance"][lives.rows[follows]],
            return_index=True,
        )
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
