"""Story: what happened in a run, as text for a person who looks for the first thing that went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statemachines.kernel import Event, Node, Step, name_of

FIRST, LAST = 200, 60
"""A long story tells its first and its last so many parts."""

MS = 1_000_000


class ScriptStory:
    """Lines are made when somebody reads them: a run that holds costs nothing but references.

    `dull(event)`: steps on it bring no news, and are left out.
    """

    def __init__(self, dull: Callable[[Event], bool] = lambda event: False) -> None:
        self._parts: list[Any] = []
        self._dull = dull

    def say(self, text: str) -> None:
        """A line."""
        self._parts.append(text)

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """A step of a machine, and those of its child machines."""
        if not self._dull(event):
            self._parts.append((node, event, before, step, now_ns))

    def text(self) -> str:
        """All of it, or its beginning and its end."""
        parts = self._parts
        left = len(parts) - FIRST - LAST
        if left > 0:
            parts = [*parts[:FIRST], f"... {left} more ...", *parts[-LAST:]]
        lines: list[str] = []
        for part in parts:
            lines += [part] if isinstance(part, str) else self._lines(*part)
        return "\n".join(lines)

    @staticmethod
    def describe_value(value: Any) -> str:
        """A message, event or request in one line: its name and its fields."""
        fields = ", ".join(f"{field}={getattr(value, field)!r}" for field in value.__struct_fields__)
        return f"{name_of(type(value))}({fields})"

    @classmethod
    def _lines(cls, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> list[str]:
        after = step.record.status
        row = cls._row(node.fsm, step.row)
        at = f"{now_ns / MS:9.0f} ms"
        lines = [f"  {at}  {node.name}: {before.value} -> {after.value}  on {cls._short(event)}  {row}"]
        for child in step.children:
            row = cls._row(child.fsm, child.row)
            moved = f"{child.source.value} -> {child.dest.value}"
            lines.append(f"{'':16}{child.machine} {child.instance}: {moved}  on {name_of(type(child.event))}  {row}")
        return lines

    @classmethod
    def _short(cls, event: Event) -> str:
        if len(event.__struct_fields__) > 6:
            return name_of(type(event))
        return cls.describe_value(event)

    @staticmethod
    def _row(fsm: Any, row: int) -> str:
        if row < 0:
            return "[no row]"
        line = fsm.lines[row]
        does = line.action_name or line.kind
        return f"[row {row}, {does}, {line.clause}]"
