"""Script: the moves of a run as data: made, repeated, and shortened to what matters.

Hypothesis finds a failing run among many; its own shrinking changes draws, and a run that fails after a thousand moves
has too many of those.  A script is shortened by its own meaning instead: moves are left out, untroubled stretches are
put together, numbers are made smaller, while the same property still breaks.

What the moves are made on is anything that has them as methods: a `Stage`, made anew for each repetition.

Story: what happened in a run, as text for a person who looks for the first thing that went wrong.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from statemachines.kernel import Event, GaplessError, Node, Step, name_of
from statemachines_sim.shrink import leave_out

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


REPLAYS_MAX = 600
"""Shortening ends after so many repetitions."""


class BrokenMonitor(Protocol):
    """A property that broke, and how."""

    @property
    def monitor(self) -> str:
        """Its name."""

    @property
    def detail(self) -> str:
        """What happened."""


class Stage(Protocol):
    """Where a script is played: a method for each move.  A move that cannot be made does nothing, so that a list of
    moves stays one when some are left out."""

    @property
    def find_broken(self) -> BrokenMonitor | None:
        """The first property that broke."""

    def run(self, moves: int) -> None:
        """So many untroubled moves."""

    @property
    def tale(self) -> ScriptStory:
        """What happened, for a person."""


NewStage = Callable[[], Any]
"""Gives a `Stage` on which nothing has happened yet."""


class ScriptMove(NamedTuple):
    """A method of the stage, and its arguments."""

    name: str
    args: tuple[int | str | bool, ...] = ()

    def __str__(self) -> str:
        return f"stage.{self.name}({', '.join(map(repr, self.args))})"


Script = tuple[ScriptMove, ...]


class ScriptFailure(NamedTuple):
    """What broke: the property, or the type of the error; and what is said about it."""

    what: str
    detail: str


def make(stage: Any, move: ScriptMove) -> ScriptFailure | None:
    """Make one move; what broke by it."""
    try:
        getattr(stage, move.name)(*move.args)
    except GaplessError as error:
        return ScriptFailure(type(error).__name__, str(error))
    except Exception as error:  # a bug of a machine is a result, with its place
        where = traceback.extract_tb(error.__traceback__)[-1]
        return ScriptFailure(type(error).__name__, f"{error} ({where.filename.rpartition('/')[2]}:{where.lineno})")
    broken = stage.broken
    return None if broken is None else ScriptFailure(broken.monitor, broken.detail)


def replay(new_stage: NewStage, script: Script) -> tuple[Any, ScriptFailure | None]:
    """A stage after these moves, and what broke."""
    stage = new_stage()
    for move in script:
        failure = make(stage, move)
        if failure is not None:
            return stage, failure
    return stage, None


def shorten(new_stage: NewStage, script: Script, failure: ScriptFailure) -> Script:
    """A script as short as can be found with which the same property breaks."""
    left = REPLAYS_MAX

    def fails(moves: Script) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            return False
        _, found = replay(new_stage, tuple(moves))
        return found is not None and found.what == failure.what

    shorter = script
    while left > 0:
        before = shorter
        shorter = leave_out(shorter, fails)
        shorter = _joined(shorter, fails)
        shorter = _smaller(shorter, fails)
        if shorter == before:
            break
    return shorter


def _joined(script: Script, fails: Callable[[Script], bool]) -> Script:
    """Two untroubled stretches one after the other are one."""
    at = 0
    while at + 1 < len(script):
        one, two = script[at], script[at + 1]
        if one.name == two.name == "run":
            joined = (*script[:at], ScriptMove("run", (int(one.args[0]) + int(two.args[0]),)), *script[at + 2 :])
            if fails(joined):
                script = joined
                continue
        at += 1
    return script


def _smaller(script: Script, fails: Callable[[Script], bool]) -> Script:
    """Every number as small as it may be."""
    for at, move in enumerate(script):
        for place, value in enumerate(move.args):
            if type(value) is not int:
                continue
            low, high = 0, value
            while low < high:
                middle = (low + high) // 2
                args = (*script[at].args[:place], middle, *script[at].args[place + 1 :])
                changed = (*script[:at], ScriptMove(move.name, args), *script[at + 1 :])
                if fails(changed):
                    script, high = changed, middle
                else:
                    low = middle + 1
    return script


def tell_counterexample(new_stage: NewStage, script: Script) -> str:
    """What breaks by the script: the property, the moves as Python, the story."""
    stage, failure = replay(new_stage, script)
    assert failure is not None
    moves = "\n".join(f"    {move}" for move in script)
    return (
        f"{failure.what}: {failure.detail}\n\nThe moves:\n\n    stage = {new_stage.__name__}()\n{moves}\n\n"
        f"What happened:\n\n{stage.tale.text()}\n\n{failure.what}: {failure.detail}"
    )
