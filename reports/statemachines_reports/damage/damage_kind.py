"""DamageKind: one kind of damage: what it may hit, and what it does to that.

DamagedRun: one run of a trace as columns, and the edits that make it wrong in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from statemachines.kernel import Fsm, name_of, node_of
from statemachines_reports.columns import STEPS, Columns
from statemachines_reports.judge import Judges
from statemachines_reports.protocol import Rows, TraceRoles


class Edit(NamedTuple):
    """`take`: the rows of the run in their new order; `cells`: (place in that order, column, new value)."""

    take: np.ndarray
    cells: tuple[tuple[int, str, Any], ...] = ()


class DamagedRun:
    """`table`: the rows of a run, every column; `others`: those of the other runs of its trace (None: there are none);
    `counted`: the kinds of faults that its parameters count; `roles`: (protocol, roles) of the protocols in it;
    `machines`: full name -> machine."""

    def __init__(
        self, table: pa.Table, judges: Judges, others: pa.Table | None = None, counted: tuple[str, ...] = ()
    ) -> None:
        self.table = table
        self.others = others
        self.counted = counted
        self.columns = Columns(table.drop_columns(["data"]))
        self.rows = table.num_rows
        self.judges = judges
        self.roles = [report.roles for report in judges.reports.values()]
        self.machines: dict[str, Fsm[Any]] = {fsm.full_name: fsm for fsm in judges.lookup.family}
        self.steps = self.columns.rows_of(*STEPS)

    def cell(self, column: str, row: int) -> Any:
        """A cell as Python has it: text or integer, -1 and "" for nothing."""
        if column in self.columns.texts:
            return self.columns.text(column, row)
        return int(self.columns[column][row])

    def machine(self, row: int) -> Fsm[Any] | None:
        """The machine that steps in this row; None: it is not known here."""
        return self.machines.get(self.cell("machine", row))

    def find_rows(self, which: str) -> np.ndarray:
        """The rows that some protocol declares to be `which`: deliveries, acknowledgements or publications."""
        named: list[Rows] = [getattr(roles, which) for roles in self.roles]
        pairs = [pair for rows in named for pair in rows]
        found = [self.columns.rows_of(kind, event=(event,)) for kind, event in pairs]
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def roles_of(self, row: int) -> TraceRoles:
        """The roles in which this row has a part; those of the first protocol where it has none."""
        pair = self.cell("kind", row), self.cell("event", row)
        for roles in self.roles:
            if pair in (*roles.deliveries, *roles.acknowledgements, *roles.publications):
                return roles
        return self.roles[0]

    def rows_of_node(self, row: int) -> np.ndarray:
        """All rows of the node of this row."""
        return np.flatnonzero(self.columns["node"] == self.columns["node"][row])

    def values(self, column: str, rows: np.ndarray) -> list[str]:
        """The different texts of a column in these rows, sorted."""
        texts = [*self.columns.texts[column], ""]
        return sorted({texts[code] for code in np.unique(self.columns[column][rows]).tolist()} - {""})

    def with_number(self, rows: np.ndarray, column: str) -> np.ndarray:
        """Those of the rows that have a number in the column."""
        return np.asarray(rows[self.columns[column][rows] >= 0])

    # -- edits ------------------------------------------------------------------------------------------------------

    def change(self, row: int, /, **cells: Any) -> Edit:
        """These cells of a row are others."""
        return Edit(np.arange(self.rows), tuple((row, column, value) for column, value in cells.items()))

    def change_to_other(self, row: int, column: str, values: list[Any], chance: Random) -> Edit | None:
        """This cell has another of the values; None: there is none."""
        found = self.pick_other(values, self.cell(column, row), chance)
        return None if found is None else self.change(row, **{column: found})

    def remove(self, rows: np.ndarray | int) -> Edit:
        """These rows are missing."""
        return Edit(np.delete(np.arange(self.rows), rows))

    def repeat(self, row: int, after: int) -> Edit:
        """A row is there again after another, at the time of that."""
        take = np.insert(np.arange(self.rows), after + 1, row)
        return Edit(take, ((after + 1, "t_ns", self.cell("t_ns", after)),))

    def move(self, row: int, before: int) -> Edit:
        """A row stands before an earlier one, at the time of that."""
        take = np.insert(np.delete(np.arange(self.rows), row), before, row)
        return Edit(take, ((before, "t_ns", self.cell("t_ns", before)),))

    def swap(self, row: int, other: int) -> Edit:
        """Two rows change places; each place keeps its time."""
        take = np.arange(self.rows)
        take[[row, other]] = other, row
        return Edit(take, ((row, "t_ns", self.cell("t_ns", row)), (other, "t_ns", self.cell("t_ns", other))))

    def apply(self, edit: Edit) -> pa.Table:
        """The rows as they are then, numbered anew: whoever wrote such a trace would have numbered it so."""
        table = self.table.take(pa.array(edit.take))
        by_column: dict[str, dict[int, Any]] = {"seq": {}}
        for place, column, value in edit.cells:
            by_column.setdefault(column, {})[place] = value
        for column, cells in by_column.items():
            at, field = table.schema.get_field_index(column), table.schema.field(column)
            values = list(range(table.num_rows)) if column == "seq" else table.column(column).to_pylist()
            for place, value in cells.items():
                values[place] = value
            array = (
                pa.array(values, pa.string()).dictionary_encode() if _is_text(field) else pa.array(values, field.type)
            )
            table = table.set_column(at, field, array.cast(field.type))
        return table

    # -- names ------------------------------------------------------------------------------------------------------

    def pick_other(self, values: list[Any], value: Any, chance: Random) -> Any:
        """One of the values that is not this one; None where there is none."""
        others = [one for one in values if one != value]
        return chance.choice(others) if others else None

    def move_to_other(self, row: int, rows: np.ndarray, chance: Random) -> dict[str, Any] | None:
        """The cells `node` and `instance` of another instance of these rows, on another node where there is one."""
        pairs = sorted({(self.cell("node", one), self.cell("instance", one)) for one in rows.tolist()})
        node, instance = self.cell("node", row), self.cell("instance", row)
        others = [pair for pair in pairs if pair[0] != node] or [pair for pair in pairs if pair[1] != instance]
        if not others:
            return None
        chosen = chance.choice(others)
        return {"node": chosen[0], "instance": chosen[1] if node_of(instance) == node else instance}


def list_rows_of_cell(fsm: Fsm[Any], event: str, source: str) -> dict[int, str]:
    """Number -> where it leads, of the rows that take this event in this state."""
    found = {}
    for line in fsm.lines:
        if (
            name_of(line.event) == event
            and line.kind != "refuse"
            and source in {str(one.value) for one in line.sources}
        ):
            found[line.number] = source if line.dest is None else str(line.dest.value)
    return found


def _is_text(field: Any) -> bool:
    return bool(pa.types.is_dictionary(field.type))


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
