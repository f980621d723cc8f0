"""ConformanceTest: an implementation in Python, in this process, as a test that unittest and pytest run.

class MyBorrower:
    def answer(self, line: dict) -> dict: ...     # a line of the interface, and the answer to it; or async def

TestMyBorrower = ConformanceTest.of(BORROWER, MyBorrower).TestCase
verdict = judge(BORROWER, step)                   # of a function, without a test runner

InProcess: an implementation in this process, which the kit talks to through JSON, as it would to a process.

An answer that is a coroutine runs in an event loop of its own thread: a test may itself run in a loop, and one that
never answers is given up.

ShippedMachine: a declared machine as an implementation of itself, through the lines of the interface.

    ConformanceTest.of(BORROWER, lambda: ShippedMachine(role_of_machine(BORROWER)))

It must pass; with a mutant in place of its machine it shows which mistakes a tour and a search find.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import TimeoutError as LateError
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, get_type_hints
from unittest import TestCase

import msgspec

from statemachines.kernel import Ask, CancelTimer, Effect, Fsm, Send, SetTimer, Tell, name_of
from statemachines.pytest_plugin import OPTIONS
from statemachines.testing.conformance import report
from statemachines.testing.conformance.campaign import RUNS, Campaign, ConformanceOutcome, ConformanceVerdict
from statemachines.testing.conformance.child_process import (
    END_S,
    PATIENCE_S,
    Implementation,
    ImplementationEnded,
    NoAnswer,
)
from statemachines.testing.conformance.interface import InterfaceError
from statemachines.testing.conformance.relation import make_plain
from statemachines.testing.conformance.report import event_from, text_of, value_from
from statemachines.testing.conformance.role import ConformanceRole, role_of_machine
from statemachines.testing.conformance.tour import Tour


class AnsweringLoop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="gapless conformance", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, Any], patience_s: float) -> Any:
        """What the coroutine returns or raises.  Raises `TimeoutError` after so many seconds."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(patience_s)
        except LateError:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, and end the thread; one that does not yield is left behind."""
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(END_S)

    def _cancel(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        ended.add_done_callback(lambda _: self._loop.stop())
        if not tasks:
            self._loop.stop()


class InProcess:
    """An adapter; an answer of a coroutine is waited for so many seconds."""

    def __init__(self, adapter: Any, patience_s: float = PATIENCE_S) -> None:
        self._adapter = adapter
        self._patience_s = patience_s
        self._line = b""
        self._loop: AnsweringLoop | None = None

    def __enter__(self) -> InProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None:
            self._loop.close()

    def say(self, line: bytes) -> None:
        """Say a line."""
        self._line = line

    def hear(self) -> bytes:
        """The answer.  Raises `Died` for an exception of the adapter, `NoAnswer` for a coroutine that does not end."""
        try:
            answer = self._adapter.answer(msgspec.json.decode(self._line))
            if inspect.isawaitable(answer):
                answer = self._wait_for(answer)
        except NoAnswer:
            raise
        except (Exception, SystemExit) as error:
            raise ImplementationEnded(f"raises {type(error).__name__}: {error}") from error
        try:
            return msgspec.json.encode(answer)
        except (TypeError, ValueError, RecursionError) as error:
            rule = "an answer is a dictionary of what JSON has: texts, numbers, lists, dictionaries"
            raise InterfaceError(f"answers with what is no JSON ({error}); {rule}") from None

    def _wait_for(self, answer: Any) -> Any:
        async def wait() -> Any:
            try:
                return await answer
            except SystemExit as error:  # it would end the loop, and nobody would answer
                raise RuntimeError(f"SystemExit: {error}") from error

        if self._loop is None:
            self._loop = AnsweringLoop()
        try:
            return self._loop.run(wait(), self._patience_s)
        except LateError:
            rule = "answer each line, or give it longer with patience_s"
            raise NoAnswer(f"has not answered after {self._patience_s:g} s; {rule}") from None


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
        return self.campaign().replay(report.load(script, self.role))

    def report_to(self, folder: Path | None, verdict: ConformanceVerdict) -> str:
        """The verdict in words; the inputs of a run that failed go to a script file in the folder."""
        text = f"\n{text_of(verdict, self.role)}"
        if folder is None or not verdict.moves:
            return text
        path = folder / f"{self.name}.jsonl"
        report.save(path, verdict.moves)
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


SEPARATOR = " "
"""Between the name of a timer and its key; names have none."""


class ShippedMachine:
    """An adapter (`conformance_test.Adapter`).  `fsm`: another machine with the same events, such as a mutant."""

    def __init__(self, role: ConformanceRole, fsm: Fsm[Any] | None = None) -> None:
        self._role = role
        self._fsm = fsm or role.fsm
        self._record: Any = None
        self._hints = get_type_hints(role.fsm.record_type, include_extras=True)
        self._kinds = {name_of(kind): kind for kind in role.interface.alphabet.takes}
        self._timers = self._fsm.timer_registry()

    def answer(self, line: dict[str, Any]) -> dict[str, Any]:
        """The answer to a line."""
        now_ns = line["now_ns"]
        if "init" in line:
            given = {field: value_from(self._hints[field], value) for field, value in line["init"].items()}
            self._record = self._fsm.record_type(**given)
            return {"effects": [_line_of(one, self._fsm) for one in self._fsm.start(self._record, now_ns)]}
        if "timer" in line:
            name, _, key = line["timer"].partition(SEPARATOR)
            event = self._timers[name](key)
        else:
            event = event_from(self._kinds[line["event"]["type"]], line["event"])
        step = self._fsm.step(self._record, event, now_ns)
        self._record = step.record
        effects = [_line_of(one, self._fsm) for one in step.effects]
        stops = step.record.status in self._fsm.final and {"effect": "stop"} not in effects
        return {"effects": [*effects, {"effect": "stop"}] if stops else effects, "n": line["n"]}


def _line_of(effect: Effect, fsm: Fsm[Any]) -> dict[str, Any]:
    """An effect as JSON has it."""
    match effect:
        case Send(to, message):
            return {"effect": "send", "to": to, "message": make_plain(message)}
        case Ask(service, request):
            return {"effect": "ask", "service": service, "request": make_plain(request)}
        case Tell(event):
            return {"effect": "tell", "event": make_plain(event)}
        case SetTimer(timer, deadline_ns, key):
            first = {"authority": True} if timer in fsm.authority else {}
            return {"effect": "set_timer", "timer": _joined(timer, key), "deadline_ns": deadline_ns, **first}
        case CancelTimer(timer, key):
            return {"effect": "cancel_timer", "timer": _joined(timer, key)}
    return {"effect": "stop"}


def _joined(timer: str, key: str) -> str:
    return f"{timer}{SEPARATOR}{key}" if key else timer
