"""Port: where the effects of a node's machines go: messages to a transport, requests to services.

A service carries a request out and feeds what comes of it: at once, later, once or often.

    async def journal(party: str, request: Save, feed: Feed) -> None:
        await write(request)
        feed(party, Saved(request.n))

Shared memory has answered when it returns (a plain function that returns None); a query over a network answers many
times and then says that it has ended.  `replies` makes a service of an async function that returns the answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from statemachines.kernel import Answer, Event
from statemachines.wire import Packet

Feed = Callable[[str, Event], None]
"""(party, event): feed it to the party; within a turn of the host it waits for the end of that."""

Service = Callable[[str, Any, Feed], Awaitable[None] | None]
"""(party, request, feed): carry it out, as above."""


class Transport(Protocol):
    """What carries packets; one for whom nobody is there is dropped."""

    def send(self, packet: Packet[Any]) -> None:
        """Send, or drop; never block, never raise."""


def serve_replies(ask: Callable[[Any], Awaitable[Iterable[Answer]]]) -> Service:
    """The service that feeds what `ask(request)` returns."""

    async def serve(party: str, request: Any, feed: Feed) -> None:
        for answer in await ask(request):
            feed(party, answer)

    return serve
