"""Held store: a real store of one node on a stage: what reaches it, and when its answers come, the script decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from statemachines.kernel import Answer
from statemachines_spec.script.conductor import Conductor

Work = Callable[[], Coroutine[Any, Any, None]]
"""Something to be done on the loop of the stores, when no other loop runs."""


class HeldStore:
    """`store` as `node` sees it under `name`.

    Where the node `is_played`, a request that the script knows travels as a message, and so does its answer (`post`
    puts the store's work off); one that the script leaves out waits for ever.  Everything else is answered at once.
    `carried_out(request, answers)` hears of all that is.
    """

    def __init__(
        self,
        store: Any,
        name: str,
        node: str,
        is_played: bool,
        conductor: Conductor,
        post: Callable[[Work], None],
        carried_out: Callable[[Any, tuple[Answer, ...]], None],
    ) -> None:
        self._store = store
        self._name = name
        self._node = node
        self._conductor = conductor
        self._post = post
        self._carried_out = carried_out
        known = (sent.to for step in conductor.script.steps for sent in step.sends)
        self._words_of = conductor.script.part.words_of
        self._is_played = is_played
        self._travels = is_played and name in known

    @property
    def identity(self) -> str:
        """The same in every run, as everything of a scripted run is; a store's own is drawn by chance."""
        return "scripted"

    async def ask(self, request: Any) -> tuple[Answer, ...]:
        """The answers, or none."""
        if self._travels:
            return await self._travel(request)
        if self._is_played and not self._conductor.answers(self._node, request):
            await asyncio.get_running_loop().create_future()
        return await self._carry_out(request)

    async def fetch(self, request: Any, *room: int) -> Any:
        """Messages, at once."""
        return await self._store.fetch(request, *room)

    async def close(self) -> None:
        """No more requests."""
        await self._store.close()

    async def _carry_out(self, request: Any) -> tuple[Answer, ...]:
        answers: tuple[Answer, ...] = await self._store.ask(request)
        self._carried_out(request, answers)
        return answers

    async def _travel(self, request: Any) -> tuple[Answer, ...]:
        answered: asyncio.Future[tuple[Answer, ...]] = asyncio.get_running_loop().create_future()

        async def carry_out() -> None:
            answers = await self._carry_out(request)
            back = self._words_of(answers[0], self._name, self._node)
            self._conductor.send_message(back, lambda: answered.set_result(answers), lambda: None)

        asked = self._words_of(request, self._node, self._name)
        self._conductor.send_message(asked, lambda: self._post(carry_out), lambda: None)
        return await answered
