"""Services: the stores that the kit plays for an implementation, by the pure services of its protocol.

    Start("one group", record, told, services=(PlayedService(GroupStore(), failed=store_failed),))

A request is answered when the kit says so, in the order of the requests to one service.  After an answer that leaves
open whether the request was carried out, the kit goes on with both: whatever comes later may show either.  So what the
services hold follows from the inputs alone, and a list of inputs repeats a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Ask, ConfigurationError, Effect, Event, Request, Service

POSSIBLE_MAX: Final = 32
"""So many states of one service are gone on with at a time."""

KNOWN_MAX: Final = 10_000
"""So many states of services are not reckoned again."""


def never(of: Any) -> tuple[()]:
    """No request fails; nobody else asks."""
    return ()


class PlayedService(msgspec.Struct, frozen=True):
    """A service, which answers a request once or not at all.  `failed(request)` are the answers that leave its outcome
    open, `others(state)` what other parties may ask of it before the next answer: finitely often."""

    service: Service[Any]
    failed: Callable[[Any], Iterable[Answer]] = never
    others: Callable[[Any], Iterable[Request]] = never


class ServiceState(msgspec.Struct, frozen=True):
    """What one service may hold, and the requests that were not answered yet."""

    possible: tuple[Any, ...]
    asked: tuple[Request, ...] = ()


PlayedWorld = tuple[ServiceState, ...]
"""The states of all services, in the order of their declaration."""


class Services:
    """The services of a start."""

    def __init__(self, played: tuple[PlayedService, ...]) -> None:
        self._played = played
        self._places = {one.service.name: place for place, one in enumerate(played)}
        self._known: dict[int, tuple[ServiceState, tuple[tuple[Answer, Any], ...]]] = {}

    def begin(self) -> PlayedWorld:
        """What they hold at first."""
        return tuple(ServiceState((one.service.initial(),)) for one in self._played)

    def answers(self, world: PlayedWorld) -> Iterator[Answer]:
        """What may be answered next."""
        for played, state in zip(self._played, world, strict=True):
            yield from dict.fromkeys(answer for answer, _ in self._outcomes(played, state))

    def after(self, world: PlayedWorld, event: Event | None, effects: Iterable[Effect]) -> PlayedWorld:
        """What they hold after an event (None: time passed) and what was asked at it."""
        asks = [one for one in effects if isinstance(one, Ask)] if self._played else []
        if not asks and not isinstance(event, Answer):
            return world
        states = [self._answered(*both, event) for both in zip(self._played, world, strict=True)]
        for one in asks:
            place = self._places.get(one.service)
            if place is None:
                rule = f"is asked, and the start plays {', '.join(self._places) or 'none'}"
                raise ConfigurationError("service", one.service, rule)
            states[place] = replace(states[place], asked=(*states[place].asked, one.request))
        return tuple(self._unanswered(*both) for both in zip(self._played, states, strict=True))

    def _outcomes(self, played: PlayedService, state: ServiceState) -> tuple[tuple[Answer, Any], ...]:
        """Each answer to the first request, and what the service holds after it; reckoned once for a state."""
        known = self._known.get(id(state))
        if known is None:
            if len(self._known) == KNOWN_MAX:
                self._known.clear()
            known = self._known[id(state)] = (state, tuple(_outcomes(played, state)))
        return known[1]

    def _answered(self, played: PlayedService, state: ServiceState, event: Event | None) -> ServiceState:
        """After an answer, if it is one to the first request."""
        if not isinstance(event, Answer) or not state.asked:
            return state
        kept: list[Any] = []
        for answer, after in self._outcomes(played, state):
            if answer == event and after not in kept:
                kept.append(after)
        return ServiceState(tuple(kept[:POSSIBLE_MAX]), state.asked[1:]) if kept else state

    def _unanswered(self, played: PlayedService, state: ServiceState) -> ServiceState:
        """With the requests carried out that get no answer."""
        while state.asked and not self._outcomes(played, state):
            after = [played.service.apply(one, state.asked[0], 0)[0] for one in state.possible]
            state = ServiceState(tuple(after), state.asked[1:])
        return state


def _outcomes(played: PlayedService, state: ServiceState) -> Iterator[tuple[Answer, Any]]:
    """Each answer to the first request, and what the service holds after it."""
    if not state.asked:
        return
    request, service = state.asked[0], played.service
    for before in _reachable(played, state.possible):
        after, answers = service.apply(before, request, 0)
        for answer in answers:
            yield answer, after
        for failure in played.failed(request):
            yield from ((failure, before), (failure, after))


def _reachable(played: PlayedService, possible: tuple[Any, ...]) -> list[Any]:
    """With what other parties may have asked meanwhile."""
    found = list(possible)
    for state in found:
        for request in played.others(state):
            after, _ = played.service.apply(state, request, 0)
            if after not in found and len(found) < POSSIBLE_MAX:
                found.append(after)
    return found
