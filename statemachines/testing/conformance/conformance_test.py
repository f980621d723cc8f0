"""ConformanceTest: an implementation in Python, in this process, as a test that unittest and pytest run.

class MyBorrower:
    def answer(self, line: dict) -> dict: ...     # a line of the interface, and the answer to it

TestMyBorrower = ConformanceTest.of(BORROWER, MyBorrower).TestCase
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from unittest import TestCase

import msgspec

from statemachines.kernel import Fsm
from statemachines.testing.conformance.campaign import RUNS, Campaign, Outcome, Verdict
from statemachines.testing.conformance.child_process import Died, Implementation
from statemachines.testing.conformance.report import text_of
from statemachines.testing.conformance.role import ConformanceRole, role_of_machine
from statemachines.testing.conformance.tour import Tour


class Adapter(Protocol):
    """An implementation, as an object that takes lines and answers them."""

    def answer(self, line: dict[str, Any]) -> dict[str, Any]:
        """The answer to a line; both are what JSON makes of them."""
        ...


class InProcess:
    """An adapter as the kit talks to it: through JSON, as a process would."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._line = b""

    def say(self, line: bytes) -> None:
        """Say a line."""
        self._line = line

    def hear(self) -> bytes:
        """The answer.  Raises `Died` for an exception of the adapter."""
        try:
            return msgspec.json.encode(self._adapter.answer(msgspec.json.decode(self._line)))
        except Exception as error:
            raise Died(f"raises {type(error).__name__}: {error}") from error


class ConformanceTest:
    """One implementation under test; make a class of it with `ConformanceTest.of`."""

    def __init__(self, role: ConformanceRole, make: Callable[[], Adapter]) -> None:
        self.role = role
        self._make = make

    @classmethod
    def of(cls, machine: Fsm[Any] | ConformanceRole, make: Callable[[], Adapter]) -> ConformanceTest:
        """A test of what `make` gives, against a machine (in the role that its protocol declares for it, if it does),
        or against a role."""
        return cls(machine if isinstance(machine, ConformanceRole) else role_of_machine(machine), make)

    def campaign(self, tour: Tour | None = None) -> Campaign:
        """The tour and the search; `tour`: that of the role, where it was made before."""

        @contextmanager
        def open_one() -> Iterator[Implementation]:
            yield InProcess(self._make())

        return Campaign(self.role, open_one, tour)

    def judge(self, runs: int = RUNS, seed: int = 0) -> Verdict:
        """The verdict, for those who have no test runner."""
        return self.campaign().judge(runs, seed)

    @property
    def TestCase(self) -> type[TestCase]:
        """A class with one test."""
        test = self

        class ConformanceTestCase(TestCase):
            def test_conformance(self) -> None:
                verdict = test.judge()
                assert verdict.outcome is Outcome.PASS, f"\n{text_of(verdict, test.role)}"

        return ConformanceTestCase
