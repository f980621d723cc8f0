"""Party: one machine on the event loop, with its log: what a publisher, a cache and a subscriber have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.lives import Life
from statemachines.drivers.node import NodeHost
from statemachines.drivers.port import Service, Transport
from statemachines.drivers.runtime import Runtime
from statemachines.kernel import Answer, Event, Fsm, Message, Node, Outgoing
from statemachines.wire import Packet


class SampleParty:
    """`transport` gets what leaves, `services` what is asked, `told(event)` what the application is told;
    `before(message)` is called when nothing comes before the message any more; `failed()` when it cannot go on,
    and `error` says why.  `came()` things are there, of which `taken()` were looked at: no timeout is believed before
    what came until it was due has been."""

    def __init__(
        self,
        fsm: Fsm[Any],
        record: Any,
        life: Life,
        *,
        transport: Transport,
        services: Mapping[str, Service] | None = None,
        told: Callable[[Event], None] = lambda event: None,
        before: Callable[[Message], None] = lambda message: None,
        failed: Callable[[], None] = lambda: None,
        came: Callable[[], int] = lambda: 0,
        taken: Callable[[], int] = lambda: 0,
    ) -> None:
        self.name = life.name
        self._runtime = Runtime(
            life.name,
            life.number,
            services or {},
            handle=self._handle,
            answered=lambda party, answer, now_ns: self._host.feed(party, answer, now_ns),
            route_tell=lambda party, event: told(event),
            log=life.log,
        )
        self._before = before
        self._runtime.on_failure = failed
        self._runtime.came, self._runtime.taken = came, taken
        self._host = NodeHost(life.name)
        self._node = Node(fsm, record, name=life.name, now_ns=steady_ns(), observe=self._runtime.observe)
        self._host.add(self._node)
        self._runtime.attach(self._host, transport)

    @property
    def record(self) -> Any:
        """What the machine keeps."""
        return self._node.record

    @property
    def error(self) -> BaseException | None:
        """Why it cannot go on."""
        return self._runtime.failed

    def feed(self, event: Event) -> None:
        """An event of the application, or an answer."""
        self._runtime.run(lambda now_ns: self._host.feed(self.name, event, now_ns))

    def answer(self, answer: Answer) -> None:
        """An answer of a service."""
        self._runtime.feed(self.name, answer)

    def receive(self, sender: str, message: Message) -> None:
        """A message of another party."""
        self._runtime.receive(Packet(sender, self.name, -1, message))

    def _handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """What comes before any event first: then `before` looks at the record that the message meets."""
        out = self._host.fire_first(now_ns)
        self._before(message)
        return out + self._host.receive(sender, to, message, now_ns)

    async def close(self) -> None:
        """No timer fires any more."""
        await self._runtime.close()
