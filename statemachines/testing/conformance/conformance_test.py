"""ConformanceTest: an implementation in Python, in this process, as a test that unittest and pytest run.

class MyBorrower:
    def answer(self, line: dict) -> dict: ...     # a line of the interface, and the answer to it; or async def

TestMyBorrower = ConformanceTest.of(BORROWER, MyBorrower).TestCase
verdict = judge(BORROWER, step)                   # of a function, without a test runner
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from unittest import TestCase

from statemachines.kernel import Fsm
from statemachines.pytest_plugin import OPTIONS
from statemachines.testing.conformance import script_file
from statemachines.testing.conformance.campaign import RUNS, Campaign, ConformanceOutcome, ConformanceVerdict
from statemachines.testing.conformance.child_process import PATIENCE_S, Implementation
from statemachines.testing.conformance.in_process import InProcess
from statemachines.testing.conformance.report import text_of
from statemachines.testing.conformance.role import ConformanceRole, role_of_machine
from statemachines.testing.conformance.tour import Tour

Answer = dict[str, Any] | Awaitable[dict[str, Any]]
"""What JSON makes of an answer, at once or later."""


class Adapter(Protocol):
    """An implementation, as an object that takes lines and answers them."""

    def answer(self, line: dict[str, Any]) -> Answer:
        """The answer to a line; both are what JSON makes of them.  It may be a coroutine."""


class FunctionAdapter:
    """A function from lines to answers, as an adapter."""

    def __init__(self, step: Callable[[dict[str, Any]], Answer]) -> None:
        self.answer = step


def judge(
    machine: Fsm[Any] | ConformanceRole,
    step: Callable[[dict[str, Any]], Answer],
    runs: int = RUNS,
    seed: int = 0,
    patience_s: float = PATIENCE_S,
) -> ConformanceVerdict:
    """The verdict on a function that answers the lines, for those who have no test runner.  A line with `init` begins
    an instance anew.

    Args:
        runs: so many drawn runs after the tour; `seed` draws them.
        patience_s: so many seconds an answer of a coroutine is waited for.

    Raises:
        InterfaceError: an answer is no line of the interface.
    """
    return ConformanceTest.of(machine, lambda: FunctionAdapter(step), patience_s).judge(runs, seed)


class ConformanceTest:
    """One implementation under test; make a class of it with `ConformanceTest.of`."""

    def __init__(
        self, role: ConformanceRole, make: Callable[[], Adapter], patience_s: float = PATIENCE_S
    ) -> None:  # fmt: skip
        self.role = role
        self.name = f"{role.fsm.name}-{getattr(make, '__name__', type(make).__name__).strip('<>')}"
        self._make = make
        self._patience_s = patience_s

    @classmethod
    def of(
        cls, machine: Fsm[Any] | ConformanceRole, make: Callable[[], Adapter], patience_s: float = PATIENCE_S
    ) -> ConformanceTest:
        """A test of what `make` gives, against a machine (in the role that its protocol declares for it, if it does),
        or against a role; an answer of a coroutine is waited for so many seconds."""
        role = machine if isinstance(machine, ConformanceRole) else role_of_machine(machine)
        return cls(role, make, patience_s)

    def campaign(self, tour: Tour | None = None) -> Campaign:
        """The tour and the search; `tour`: that of the role, where it was made before."""

        @contextmanager
        def open_one() -> Iterator[Implementation]:
            with InProcess(self._make(), self._patience_s) as implementation:
                yield implementation

        return Campaign(self.role, open_one, tour)

    def judge(self, runs: int = RUNS, seed: int = 0) -> ConformanceVerdict:
        """The verdict, for those who have no test runner."""
        return self.campaign().judge(runs, seed)

    def replay(self, script: Path) -> ConformanceVerdict:
        """The verdict on the inputs of a script file alone.  Raises `ConfigurationError` for a file that is none."""
        return self.campaign().replay(script_file.load(script, self.role))

    def report_to(self, folder: Path | None, verdict: ConformanceVerdict) -> str:
        """The verdict in words; the inputs of a run that failed go to a script file in the folder."""
        text = f"\n{text_of(verdict, self.role)}"
        if folder is None or not verdict.moves:
            return text
        path = folder / f"{self.name}.jsonl"
        script_file.save(path, verdict.moves)
        return f"{text}\n  kept in   {path}"

    @property
    def TestCase(self) -> type[TestCase]:
        """A class with one test; `pytest --gapless-seed N --gapless-trace-dir DIR` say what draws its runs, and where
        the script of one that fails is kept."""
        test = self

        class ConformanceTestCase(TestCase):
            def test_conformance(self) -> None:
                verdict = test.judge(seed=OPTIONS.seed)
                assert verdict.outcome is ConformanceOutcome.PASS, test.report_to(OPTIONS.trace_dir, verdict)

        return ConformanceTestCase
