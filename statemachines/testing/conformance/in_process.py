"""InProcess: an implementation in this process, which the kit talks to through JSON, as it would to a process.

An answer that is a coroutine runs in an event loop of its own thread: a test may itself run in a loop, and one that
never answers is given up.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as LateError
from types import TracebackType
from typing import Any

import msgspec

from statemachines.testing.conformance.child_process import END_S, PATIENCE_S, ImplementationEnded, NoAnswer
from statemachines.testing.conformance.interface import InterfaceError


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
