"""Ask damage: requests to services, and answers to them, that are missing, too early, or to another request."""

from __future__ import annotations

from random import Random
from typing import Final

import numpy as np

from statemachines.kernel import Answer, name_of
from statemachines_reports.damage.damage_kind import DamagedRun, DamageKind, Edit


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


def find_asks(run: DamagedRun) -> np.ndarray:
    """Requests to services."""
    return run.columns.rows_of("ask")


def change_request(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another request that the service takes."""
    asks = find_asks(run)
    beside = asks[run.columns["peer"][asks] == run.columns["peer"][row]]
    found = run.pick_other(run.values("event", beside), run.cell("event", row), chance)
    return None if found is None else run.change(row, event=found)


def ask_another(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another service, or one that the trace has not."""
    services = [*run.values("peer", find_asks(run)), "nobody"]
    return run.change(row, peer=run.pick_other(services, run.cell("peer", row), chance))


def change_key(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The key of another such request."""
    asks = find_asks(run)
    alike = asks[run.columns["event"][asks] == run.columns["event"][row]]
    key = run.cell("key", row)
    found = run.pick_other(run.values("key", alike), key, chance) if key else None
    return None if found is None else run.change(row, key=found)


def change_asked_number(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another number, in one of the columns that have one."""
    columns = [column for column in ("first", "last") if run.cell(column, row) >= 0]
    column = chance.choice(columns) if columns else ""
    return run.change(row, **{column: run.cell(column, row) + 1}) if column else None


KINDS: Final = (
    DamageKind("ask-removed", find_answered, lambda run, row, chance: run.remove(row)),
    DamageKind("ask-repeated", find_answered, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("ask-event", find_asks, change_request),
    DamageKind("ask-elsewhere", find_asks, ask_another),
    DamageKind("ask-key", find_asks, change_key),
    DamageKind("ask-number", find_asks, change_asked_number),
    DamageKind("answer-removed", find_answers, lambda run, row, chance: run.remove(row)),
    DamageKind("answer-early", find_answered, answer_early),
    DamageKind("answer-of-another", find_answers, change_answer),
)
