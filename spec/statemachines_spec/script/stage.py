"""Stage: what the parties of a scripted run run on: a simulator, or an asyncio loop whose time is given to it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol

from statemachines.kernel import GaplessError
from statemachines_spec.script.script import ScriptStep


class CannotFollow(GaplessError):
    """What the script says cannot happen here."""


class PartyStage(Protocol):
    """Does what a conductor says, to real parties.  Each method raises `CannotFollow` where it cannot be done, and
    unless a stage says how, nothing can."""

    @abstractmethod
    def advance(self, at_ns: int) -> None:
        """It is `at_ns` now; everything that was due before has happened."""

    @abstractmethod
    def settle(self) -> None:
        """Everything that is due now happens, until nothing is."""

    def start(self, node: str) -> None:
        """The process begins."""
        raise CannotFollow(f"nobody here can start {node}")

    def crash(self, node: str) -> None:
        """The process is gone."""
        raise CannotFollow(f"nobody here can crash {node}")

    def lose_disk(self, node: str) -> None:
        """The process is gone, and its disk as well."""
        raise CannotFollow(f"nobody here can lose the disk of {node}")

    def restart(self, node: str) -> None:
        """The process comes back, in its next life."""
        raise CannotFollow(f"nobody here can restart {node}")

    def pause(self, node: str) -> None:
        """The process stands still."""
        raise CannotFollow(f"nobody here can pause {node}")

    def wake(self, node: str) -> None:
        """The process goes on."""
        raise CannotFollow(f"nobody here can wake {node}")

    def do(self, step: ScriptStep) -> None:
        """A call of an application, or a word of the protocol's own."""
        raise CannotFollow(f"nobody here can {step.do}")

    def end(self, release: Callable[[], None]) -> None:
        """The script is over, and nothing has kept it from its end.  Whatever shows what it came to happens now;
        `release()`: from then on every message arrives."""
        return
