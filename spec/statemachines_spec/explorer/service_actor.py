"""ServiceActor: a service that machines ask things of, as a component: its shipped `apply`, and nothing else.

It is reached at once: request, `apply` and answers lie within the step that asks.  A `remote` one is reached through
the network: requests and answers travel, are neither lost nor doubled, and others may come in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Request, Service
from statemachines_spec.explorer.actor import Actor, At, Envelope, Reaction, Watch, words_of
from statemachines_spec.explorer.fsm_actor import fields_of
from statemachines_spec.explorer.property import View


class Asked(Event, frozen=True, gc=False):
    """A request on its way to a remote service."""

    request: Any


class ServiceLocal(msgspec.Struct, frozen=True, gc=False):
    """What the service keeps; `now_ns`: the instant."""

    state: Any
    now_ns: int = 0


class ServiceActor(Actor):
    """`service`: what is asked, under its own name; `remote`: requests and answers travel; `state` that it begins with
    (else the empty one); `calls(state)`: requests that the environment may make; `bound(state)`: what lies within the
    bounds; `canonical(state)`: see `Actor.canonical`; `words(state)`: for people."""

    keeps_time = True

    def __init__(
        self,
        service: Service[Any],
        *,
        remote: bool = False,
        state: Any = None,
        calls: Callable[[Any], Iterable[Request]] | None = None,
        bound: Callable[[Any], bool] | None = None,
        canonical: Callable[[Any], Any] | None = None,
        words: Callable[[Any], str] | None = None,
    ) -> None:
        super().__init__(service.name)
        self.service = service
        self.remote = remote
        self._state = service.initial() if state is None else state
        self._calls = calls
        self._bound = bound
        self._canonical = canonical
        self._words = words or _words

    def initial(self) -> ServiceLocal:
        return ServiceLocal(self._state)

    def inputs(self, local: ServiceLocal) -> tuple[Any, ...]:
        return () if self._calls is None else tuple(self._calls(local.state))

    def react(self, local: ServiceLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, At):
            return Reaction(replace(local, now_ns=event.now_ns))
        if isinstance(event, Asked):
            return self._applied(local, envelope.sender, event.request)
        if self.remote and envelope.sender:
            return Reaction(local, (Envelope(envelope.sender, self.name, Asked(event)),))
        return self._applied(local, envelope.sender, event)

    def within(self, local: ServiceLocal) -> bool:
        return self._bound is None or bool(self._bound(local.state))

    def canonical(self, local: ServiceLocal) -> ServiceLocal:
        return local if self._canonical is None else replace(local, state=self._canonical(local.state))

    def describe(self, local: ServiceLocal) -> str:
        return self._words(local.state) + (f"; at {local.now_ns}" if local.now_ns else "")

    def bounds(self) -> dict[str, str]:
        lines = {"requests and answers": "travel"} if self.remote else {}
        return lines if self._bound is None else {**lines, "bound": words_of(self._bound)}

    def view(self, of: Callable[[Any], int], size: int = 2) -> View:
        """What a property reads of its state: `of(state)` in range(`size`)."""
        return View(self.name, size, lambda local: int(of(local.state)))

    def _applied(self, local: ServiceLocal, asker: str, request: Request) -> Reaction:
        state, answers = self.service.apply(local.state, request, local.now_ns)
        back = tuple(Envelope(self.name, asker, answer) for answer in answers if asker)
        local = replace(local, state=state)
        return Reaction(local, back) if self.remote else Reaction(local, (), back)


def _words(state: Any) -> str:
    return fields_of(state) if isinstance(state, msgspec.Struct) else str(state)
