"""LeaderStarts: leaders of groups begin as the group store keeps up, so that those which lead are served meanwhile.

Anybody that may connect may ask for leaders of groups that nobody has declared, and each of them reads the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

from statemachines.drivers.port import Feed
from statemachines.kernel import Answer
from statemachines.shared_subscriptions.message import LeaderWanted

REQUESTS_MAX: Final = 16
"""While the store has more requests to carry out, no leader begins."""
WAITING_MAX: Final = 1_000
"""So many questions for a leader wait; one more is dropped, and its borrower asks again."""


class LeaderQuestion(NamedTuple):
    """A message that would begin a leader."""

    sender: str
    to: str
    message: LeaderWanted


class LeaderStarts:
    """`ask`: of the group store; `begin(question)` lets the host take the message."""

    def __init__(
        self, ask: Callable[[Any], Awaitable[Iterable[Answer]]], begin: Callable[[LeaderQuestion], None]
    ) -> None:
        self._ask = ask
        self._begin = begin
        self._requests = 0
        self._waiting: dict[str, LeaderQuestion] = {}
        """By the borrower that asks, in their order."""

    def serve(self, party: str, request: Any, feed: Feed) -> Awaitable[None]:
        """The group store, as a service of the host."""
        self._requests += 1
        return self._carry_out(party, request, feed)

    async def _carry_out(self, party: str, request: Any, feed: Feed) -> None:
        try:
            answers = await self._ask(request)
        finally:
            self._requests -= 1
        for answer in answers:
            feed(party, answer)
        while self._waiting and self._requests < REQUESTS_MAX:
            self._begin(self._waiting.pop(next(iter(self._waiting))))

    def keep(self, question: LeaderQuestion) -> bool:
        """Whether it waits, or is dropped; else it begins now."""
        if self._requests < REQUESTS_MAX:
            return False
        borrower = question.message.borrower
        if borrower in self._waiting or len(self._waiting) < WAITING_MAX:
            self._waiting[borrower] = question
        return True
