"""Table: all the rows there are, by theme.  A new theme is a module with `ROWS`, named in `THEMES`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from statemachines.kernel import ConfigurationError
from statemachines_bench.row import BenchRow

THEMES: Final = (
    "dispatch", "simulation", "transport", "throughput", "failover", "judging",
    "exploring", "shared_memory", "windows", "missed_samples", "sessions",
    "mqtt_traffic", "session_costs", "session_failover", "analysing",
)  # fmt: skip
"""The modules of this package that have rows, in the order in which they are measured."""


def all_rows() -> tuple[BenchRow, ...]:
    """Every row, by theme."""
    return tuple(row for theme in THEMES for row in import_module(f"statemachines_bench.{theme}").ROWS)


def choose(names: Sequence[str], has_long: bool = False) -> tuple[BenchRow, ...]:
    """The rows called so, in the order of the table; without names all, and the long ones only if `has_long`.  Raises
    `ConfigurationError` for others."""
    rows = all_rows()
    known = [row.name for row in rows]
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ConfigurationError("bench row", name, f"unknown; {hint}there are: {', '.join(known)}")
    return tuple(row for row in rows if (row.name in names if names else has_long or not row.is_long))


def list_rows(rows: Iterable[BenchRow]) -> RenderableType:
    """A line for each row."""
    table = Table.grid(padding=(0, 3))
    for row in rows:
        target = f"{row.target_text}; only by name" if row.is_long else row.target_text
        table.add_row(Text(row.name, style="bold"), Text(target), Text(row.about))
    return table


def list_json(rows: Iterable[BenchRow]) -> bytes:
    """The rows as a list of objects: name, about, unit, baseline_name, target."""
    objects = [
        {
            "name": row.name,
            "about": row.about,
            "unit": row.unit,
            "baseline_name": row.baseline_name,
            "target": row.target,
        }
        for row in rows
    ]
    return msgspec.json.format(msgspec.json.encode(objects), indent=2)
