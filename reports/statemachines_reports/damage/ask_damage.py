"""Ask damage: requests to services, and answers to them, that are missing, too early, or to another request."""

from __future__ import annotations

from random import Random
from typing import Final

import numpy as np

from statemachines.kernel import Answer, name_of
from statemachines_reports.damage.damage_kind import DamageKind
from statemachines_reports.damage.damaged_run import DamagedRun, Edit


def find_answers(run: DamagedRun) -> np.ndarray:
    """Steps that take an answer of a service."""
    answers = {name_of(one) for fsm in run.machines.values() for one in fsm.alphabet if issubclass(one, Answer)}
    rows = run.steps[run.columns.is_one_of("event", tuple(answers), run.steps)]
    asking = np.unique(run.columns["instance"][run.columns.rows_of("ask")])
    return np.asarray(rows[np.isin(run.columns["instance"][rows], asking)])


def find_answered(run: DamagedRun) -> np.ndarray:
    """Requests whose instance takes an answer next."""
    asks, answers = run.columns.rows_of("ask"), find_answers(run)
    rows = np.sort(np.concatenate((asks, answers)))
    order = rows[np.argsort(run.columns["instance"][rows], kind="stable")]
    is_ask = np.isin(order, asks)
    same = run.columns["instance"][order][1:] == run.columns["instance"][order][:-1]
    return np.sort(order[:-1][is_ask[:-1] & ~is_ask[1:] & same])


def answer_early(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The next answer of the instance stands before this request."""
    answers = find_answers(run)
    answers = answers[(answers > row) & (run.columns["instance"][answers] == run.columns["instance"][row])]
    return run.move(int(answers[0]), row)


def change_answer(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another answer of the machine."""
    fsm = run.machine(row)
    answers = [name_of(one) for one in fsm.alphabet if issubclass(one, Answer)] if fsm else []
    found = run.pick_other(answers, run.cell("event", row), chance)
    return None if found is None else run.change(row, event=found)


KINDS: Final = (
    DamageKind("ask-removed", find_answered, lambda run, row, chance: run.remove(row)),
    DamageKind("ask-repeated", find_answered, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("answer-removed", find_answers, lambda run, row, chance: run.remove(row)),
    DamageKind("answer-early", find_answered, answer_early),
    DamageKind("answer-of-another", find_answers, change_answer),
)
