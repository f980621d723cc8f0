"""Tell damage: what the application gets twice, never, changed, in another order, or acknowledges too early."""

from __future__ import annotations

from random import Random
from typing import Final

import numpy as np

from statemachines_reports.damage.damage_kind import DamagedRun, DamageKind, Edit


def find_deliveries(run: DamagedRun) -> np.ndarray:
    """What the application gets."""
    return run.find_rows("deliveries")


def find_acknowledged(run: DamagedRun) -> np.ndarray:
    """Deliveries that are acknowledged."""
    rows = find_deliveries(run)
    return np.array([row for row in rows.tolist() if find_acknowledgement(run, row) is not None], np.int64)


def find_keyed(run: DamagedRun) -> np.ndarray:
    """Deliveries that name a stream."""
    rows = find_deliveries(run)
    return np.asarray(rows[run.columns["key"][rows] < len(run.columns.texts["key"])])


def find_numbered(run: DamagedRun) -> np.ndarray:
    """Deliveries that have a number."""
    rows = find_deliveries(run)
    return np.asarray(rows[run.columns["first"][rows] >= 0])


def find_in_streams(run: DamagedRun) -> np.ndarray:
    """Deliveries behind which another one of their stream follows at their instance."""
    rows = find_numbered(run)
    return np.array([row for row in rows.tolist() if find_next(run, row) is not None], np.int64)


def find_next(run: DamagedRun, row: int) -> int | None:
    """The next delivery of its stream at its instance, of another number; None: there is none."""
    rows, columns = find_numbered(run), run.columns
    rows = rows[rows > row]
    end = run.roles_of(row).stream_end
    streams = {code: text.rpartition(end)[0] if end else text for code, text in enumerate(columns.texts["key"])}
    stream = streams.get(int(columns["key"][row]))
    of_stream = [code for code, text in streams.items() if text == stream] or [len(streams)]
    same = (columns["instance"][rows] == columns["instance"][row]) & np.isin(columns["key"][rows], of_stream)
    found = rows[same & (columns["first"][rows] != columns["first"][row])]
    return int(found[0]) if len(found) else None


def find_acknowledgement(run: DamagedRun, row: int) -> int | None:
    """The row in which this delivery is acknowledged by its instance; None: it is not."""
    columns, roles = run.columns, run.roles_of(row)
    rows = run.find_rows("acknowledgements")
    rows = rows[(rows > row) & (columns["instance"][rows] == columns["instance"][row])]
    if not len(rows) or columns["first"][row] < 0:
        return None
    first = columns[roles.number[0]][row]
    rows = rows[(columns["first"][rows] <= first) & (np.maximum(columns["last"], columns["first"])[rows] >= first)]
    keyed = columns["key"][rows] < len(columns.texts["key"])
    rows = rows[~keyed | (columns["key"][rows] == columns["key"][row])]
    return int(rows[0]) if len(rows) else None


def repeat_later(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It is told again behind a later row of its node."""
    rows = run.rows_of_node(row)
    rows = rows[rows > row]
    return run.repeat(row, int(rows[chance.randrange(len(rows))])) if len(rows) else None


def change_number(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It has another number."""
    by = chance.randint(1, 9)
    columns = [column for column in run.roles_of(row).number if run.cell(column, row) >= 0]
    return run.change(row, **{column: run.cell(column, row) + by for column in columns})


def change_key(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It is of another stream."""
    key = run.roles_of(row).key
    found = run.pick_other(run.values(key, find_deliveries(run)), run.cell(key, row), chance)
    return None if found is None else run.change(row, **{key: found})


def change_instance(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another instance tells it."""
    cells = run.move_to_other(row, find_deliveries(run), chance)
    return None if cells is None else run.change(row, **cells)


def swap_deliveries(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It and the next of its stream."""
    other = find_next(run, row)
    return None if other is None else run.swap(row, other)


def acknowledge_early(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Its acknowledgement stands before it."""
    found = find_acknowledgement(run, row)
    return None if found is None else run.move(found, row)


KINDS: Final = (
    DamageKind("tell-twice", find_deliveries, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("tell-again", find_deliveries, repeat_later),
    DamageKind("tell-never", find_acknowledged, lambda run, row, chance: run.remove(row)),
    DamageKind("tell-number", find_numbered, change_number),
    DamageKind("tell-key", find_keyed, change_key),
    DamageKind("tell-instance", find_deliveries, change_instance),
    DamageKind("tells-swapped", find_in_streams, swap_deliveries),
    DamageKind("ack-early", find_acknowledged, acknowledge_early),
    DamageKind(
        "publication-removed",
        lambda run: run.find_rows("publications"),
        lambda run, row, chance: run.remove(row),
    ),
)
