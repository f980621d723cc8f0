"""Entity: what is declared at a session of zenoh, from any thread, with an event loop or without."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from statemachines.drivers.missed_samples.layout import undeclare
from statemachines.drivers.opening import finish_in_thread, open_in_thread


class Entity:
    """`with`, `async with`, or `open` and `close`, which may wait for the network.  What was declared is undone in the
    opposite order; where a declaration fails, at once."""

    def __init__(self) -> None:
        self._declared = ExitStack()

    def _declare(self) -> None:
        """What a class of entities declares."""

    def _add(self, entity: Any) -> Any:
        """Itself; it is undeclared at the end."""
        self._declared.callback(undeclare, entity)
        return entity

    def open(self) -> Self:
        """Declare it; itself."""
        try:
            self._declare()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Undo all that was declared; a second call does nothing."""
        self._declared.close()

    __enter__ = open

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await open_in_thread(self.open, Entity.close)

    async def __aexit__(self, *_: object) -> None:
        await finish_in_thread(self.close)
