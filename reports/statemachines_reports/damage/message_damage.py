"""Message damage: sends and deliveries that are missing, repeated, too early, or changed on their way."""

from __future__ import annotations

from random import Random
from typing import Final

import numpy as np

from statemachines_reports.damage.damage_kind import DamagedRun, DamageKind, Edit


def find_delivers(run: DamagedRun) -> np.ndarray:
    """Deliveries of numbered messages."""
    rows = run.columns.rows_of("deliver")
    return np.asarray(rows[run.columns["msg"][rows] >= 0])


def find_sends(run: DamagedRun) -> np.ndarray:
    """Sends of messages that arrive."""
    rows = run.columns.rows_of("send")
    return rows[np.isin(run.columns["msg"][rows], run.columns["msg"][find_delivers(run)])]


def find_ranged(run: DamagedRun) -> np.ndarray:
    """Deliveries that name a range."""
    rows = find_delivers(run)
    return np.asarray(rows[run.columns["first"][rows] >= 0])


def deliver_early(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It stands before its send."""
    sends = run.columns.rows_of("send")
    own = sends[run.columns["msg"][sends] == run.columns["msg"][row]]
    return run.move(row, int(own[0])) if len(own) and own[0] < row else None


def deliver_elsewhere(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another node gets it."""
    cells = run.move_to_other(row, find_delivers(run), chance)
    return None if cells is None or cells["node"] == run.cell("node", row) else run.change(row, **cells)


def send_elsewhere(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another node sends it."""
    found = run.pick_other(run.values("node", find_sends(run)), run.cell("node", row), chance)
    return None if found is None else run.change(row, node=found)


def send_to_another(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It is sent to another party."""
    found = run.pick_other(run.values("peer", find_sends(run)), run.cell("peer", row), chance)
    return None if found is None else run.change(row, peer=found)


def change_message(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It is another message of the trace."""
    events = run.values("event", find_delivers(run))
    found = run.pick_other(events, run.cell("event", row), chance)
    return None if found is None else run.change(row, event=found)


def change_range(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Its range is another."""
    last, by = run.cell("last", row), chance.randint(1, 9)
    cells = {"first": run.cell("first", row) + by} | ({"last": last + by} if last >= 0 else {})
    return run.change(row, **cells)


KINDS: Final = (
    DamageKind("send-removed", find_sends, lambda run, row, chance: run.remove(row)),
    DamageKind("send-elsewhere", find_sends, send_elsewhere),
    DamageKind("send-to-another", find_sends, send_to_another),
    DamageKind("deliver-removed", find_delivers, lambda run, row, chance: run.remove(row)),
    DamageKind("deliver-repeated", find_delivers, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("deliver-early", find_delivers, deliver_early),
    DamageKind("deliver-elsewhere", find_delivers, deliver_elsewhere),
    DamageKind("deliver-event", find_delivers, change_message),
    DamageKind("deliver-range", find_ranged, change_range),
)
