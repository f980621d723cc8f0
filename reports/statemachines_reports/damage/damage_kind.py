"""DamageKind: one kind of damage: what it may hit, and what it does to that."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from statemachines_reports.damage.damaged_run import DamagedRun, Edit


class DamageKind(NamedTuple):
    """`find(run)`: the rows that it may hit; `act(run, row, chance)`: what it does to one (None: nothing, as there is
    no other value)."""

    name: str
    find: Callable[[DamagedRun], np.ndarray]
    act: Callable[[DamagedRun, int, Random], Edit | None]


TRIES: Final = 50
"""So many rows are drawn until one is found that the damage can hit."""


class DamageTally(msgspec.Struct, frozen=True):
    """A kind of damage, done `tried` times: how often some check saw it, and each of the `checks` that did."""

    kind: str
    tried: int
    seen: int
    checks: dict[str, int]
    unseen: list[str] = []
    """Where nobody saw it."""


class Damage(msgspec.Struct, frozen=True):
    """A damaged run, and where it was damaged, in words."""

    table: pa.Table
    place: str


def damage_run(run: DamagedRun, kind: DamageKind, seed: int) -> Damage | None:
    """The run with this damage at a place that the seed draws; None: there is nothing that it can hit."""
    rows = kind.find(run)
    chance = Random(f"{kind.name}/{seed}")
    for _ in range(TRIES if len(rows) else 0):
        row = int(rows[chance.randrange(len(rows))])
        edit = kind.act(run, row, chance)
        if edit is not None:
            what = " ".join(filter(None, (run.cell(one, row) for one in ("kind", "event", "machine", "instance"))))
            return Damage(run.apply(edit), f"{kind.name} at run {run.cell('run', row)} seq {row}: {what}")
    return None
