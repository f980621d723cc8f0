"""Script: the moves of a run as data: made, repeated, and shortened to what matters.

Hypothesis finds a failing run among many; its own shrinking changes draws, and a run that fails after a thousand moves
has too many of those.  A script is shortened by its own meaning instead: moves are left out, untroubled stretches are
put together, numbers are made smaller, while the same property still breaks.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import NamedTuple

from statemachines.kernel import GaplessError
from statemachines.testing.shared_subscriptions.finish import finish
from statemachines.testing.shared_subscriptions.system import System
from statemachines_sim.shrink import leave_out

REPLAYS_MAX = 600
"""Shortening ends after so many repetitions."""


class Move(NamedTuple):
    """A method of `System` and its arguments; "finish" is the function of that name."""

    name: str
    args: tuple[int | str | bool, ...] = ()

    def __str__(self) -> str:
        if self.name == "finish":
            return "finish(system)"
        return f"system.{self.name}({', '.join(map(repr, self.args))})"


Script = tuple[Move, ...]


class Failure(NamedTuple):
    """What broke: the property, or the type of the error; and what is said about it."""

    what: str
    detail: str


def make(system: System, move: Move) -> Failure | None:
    """Make one move; what broke by it."""
    try:
        if move.name == "finish":
            finish(system)
        else:
            getattr(system, move.name)(*move.args)
    except GaplessError as error:
        return Failure(type(error).__name__, str(error))
    except Exception as error:  # a bug of a machine is a result, with its place
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Failure(type(error).__name__, f"{error} ({where.filename.rpartition('/')[2]}:{where.lineno})")
    broken = system.broken
    return None if broken is None else Failure(broken.monitor, broken.detail)


def replay(script: Script) -> tuple[System, Failure | None]:
    """A system after these moves, and what broke."""
    system = System()
    for move in script:
        failure = make(system, move)
        if failure is not None:
            return system, failure
    return system, None


def shorten(script: Script, failure: Failure) -> Script:
    """A script as short as can be found with which the same property breaks."""
    left = REPLAYS_MAX

    def fails(moves: Script) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            return False
        _, found = replay(tuple(moves))
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
            joined = (*script[:at], Move("run", (int(one.args[0]) + int(two.args[0]),)), *script[at + 2 :])
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
                changed = (*script[:at], Move(move.name, args), *script[at + 1 :])
                if fails(changed):
                    script, high = changed, middle
                else:
                    low = middle + 1
    return script


def told(script: Script) -> str:
    """What breaks by the script: the property, the moves as Python, the story."""
    system, failure = replay(script)
    assert failure is not None
    moves = "\n".join(f"    {move}" for move in script)
    return (
        f"{failure.what}: {failure.detail}\n\nThe moves:\n\n    system = System()\n{moves}\n\n"
        f"What happened:\n\n{system.tale.text()}\n\n{failure.what}: {failure.detail}"
    )
