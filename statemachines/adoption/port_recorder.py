"""Port recorder: stands for an attribute that reaches the world; its calls become effects of the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


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

    `answers`: method -> what its calls return ("" for the port itself); None for all others.
    """

    def __init__(self, name: str, calls: list[PortCall], answers: Mapping[str, Any] | None = None) -> None:
        self._name = name
        self._calls = calls
        self._answers = dict(answers or {})

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
        self._calls.append(PortCall(self._name, method, ", ".join(said)))
        return self._answers.get(method)
