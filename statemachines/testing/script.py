"""Script: the moves of a run as data: made, repeated, and shortened to what matters.

Hypothesis finds a failing run among many; its own shrinking changes draws, and a run that fails after a thousand moves
has too many of those.  A script is shortened by its own meaning instead: moves are left out, untroubled stretches are
put together, numbers are made smaller, while the same property still breaks.

What the moves are made on is anything that has them as methods: a `Stage`, made anew for each repetition.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from statemachines.kernel import GaplessError
from statemachines.testing.story import ScriptStory
from statemachines_sim.shrink import leave_out

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
