"""Port recorder: stands for an attribute that reaches the world; its calls become effects of the step."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from statemachines.adoption.canonical_value import hide_addresses


class PortCall(msgspec.Struct, frozen=True):
    """A callback called `port.method(...)`; `arguments` as they would be written."""

    port: str
    method: str
    arguments: str

    def __str__(self) -> str:
        name = f"{self.port}.{self.method}" if self.method else self.port
        return f"{name}({self.arguments})"


class PortRecorder:
    """Any attribute of it can be called, and it can be called itself.

    `answers`: method -> what its calls return ("" for the port itself); None for all others.  A method that is a
    coroutine function of what it stands for is one here too.
    """

    def __init__(
        self, name: str, calls: list[PortCall], answers: Mapping[str, Any] | None = None, original: Any = None
    ) -> None:
        self._name = name
        self._calls = calls
        self._answers = dict(answers or {})
        self._original = original

    def __enter__(self) -> PortRecorder:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    async def __aenter__(self) -> PortRecorder:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None

    def __getattr__(self, method: str) -> Any:
        if method.startswith("__"):
            raise AttributeError(method)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._record(method, args, kwargs)

        return call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._record("", args, kwargs)

    def _record(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        said = [repr(one) for one in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
        self._calls.append(PortCall(self._name, method, hide_addresses(", ".join(said))))
        answer = self._answers.get(method)
        stands_for = getattr(self._original, method, None) if method else self._original
        return _later(answer) if inspect.iscoroutinefunction(stands_for) else answer


async def _later(answer: Any) -> Any:
    return answer
