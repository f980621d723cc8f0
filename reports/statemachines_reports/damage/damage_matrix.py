"""Damage matrix: every kind of damage, done to a trace, and which checks see it.

Data damage: a field in the data of a row is another.  It takes a trace with data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow.compute as pc

from statemachines.trace.row import LOCAL
from statemachines_reports.columns import STEPS
from statemachines_reports.damage import ask_damage, cell_damage, message_damage, step_damage, tell_damage
from statemachines_reports.damage.damage_kind import DamageKind, DamageTally
from statemachines_reports.damage.damage_list import WITHOUT_DATA
from statemachines_reports.damage.damage_trial import DamageTrial
from statemachines_reports.damage.damaged_run import DamagedRun, Edit

EFFECTS: Final = ("send", "ask", "tell")


def has_data(run: DamagedRun) -> bool:
    """Whether its rows have the fields of events."""
    return len(run.columns.rows_of("record")) > 0


def find_filled(*kinds: str) -> Any:
    """Rows of these kinds whose data has a number in it."""

    def find(run: DamagedRun) -> np.ndarray:
        if not has_data(run):
            return np.zeros(0, np.int64)
        numbered = pc.match_substring_regex(run.table.column("data"), r'":-?\d')
        return np.intersect1d(run.columns.rows_of(*kinds), np.flatnonzero(numbered.fill_null(False).to_numpy()))

    return find


def change_field(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """A number in its data is another by one."""
    fields = msgspec.json.decode(run.table.column("data")[row].as_py(), type=dict[str, Any])
    numbers = sorted(name for name, value in fields.items() if type(value) is int and name != LOCAL)
    if not numbers:
        return None
    name = chance.choice(numbers)
    changed = {**fields, name: fields[name] + 1}
    return run.change(row, data=msgspec.json.encode(changed).decode())


KINDS: Final = (
    DamageKind("event-field", find_filled(*STEPS), change_field),
    DamageKind("effect-field", find_filled(*EFFECTS), change_field),
)


ALL_KINDS: Final = (
    *step_damage.KINDS, *message_damage.KINDS, *tell_damage.KINDS, *cell_damage.KINDS, *ask_damage.KINDS,
    *KINDS,
)  # fmt: skip
BY_NAME: Final = {kind.name: kind for kind in ALL_KINDS}


def count_cells(found: Iterable[DamageTally]) -> tuple[int, int]:
    """How many kinds were tried, and how many of them were seen in most tries."""
    tallies = list(found)
    return len(tallies), sum(2 * one.seen > one.tried for one in tallies)


def list_left_out(trial: DamageTrial) -> dict[str, str]:
    """Kind -> why it is not tried in this trace."""
    own = [report.roles.left_out for report in trial.judges.reports.values()]
    return {**({} if trial.has_data else WITHOUT_DATA), **{kind: why for one in own for kind, why in one.items()}}


def try_all(trial: DamageTrial, seeds: Iterable[int], kinds: Iterable[DamageKind] = ALL_KINDS) -> Iterator[DamageTally]:
    """Every kind that is not left out, and that can hit something in the trace."""
    left_out, numbers = list_left_out(trial), list(seeds)
    for kind in kinds:
        if kind.name not in left_out:
            found = trial.try_kind(kind, numbers)
            if found is not None:
                yield found
