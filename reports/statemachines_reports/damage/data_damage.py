"""Data damage: a field in the data of a row is another.  It takes a trace with data."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow.compute as pc

from statemachines.trace.row import LOCAL
from statemachines_reports.columns import STEPS
from statemachines_reports.damage.damage_kind import DamageKind
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
