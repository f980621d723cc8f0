"""Store: a pure service behind a delay, which may fail before or after it has carried a request out."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from statemachines.kernel import Answer, Request, Service
from statemachines.shared_subscriptions.configuration import MS
from statemachines_sim.clock import Clock
from statemachines_sim.fault import Fault

Reply = Callable[[Answer], None]


class Store:
    """`failed(n)` makes the answer to a request `n` that fails; `watch(request, answers)` hears what is carried out."""

    def __init__(
        self,
        env: Clock,
        service: Service[Any],
        seed: int,
        failed: Callable[[int], Answer],
        watch: Callable[[Request, tuple[Answer, ...]], None] | None = None,
    ) -> None:
        self._env = env
        self._service = service
        self._failed = failed
        self._watch = watch
        self._random = random.Random(f"{seed}/{service.name}").random
        self.state = service.initial()
        self.faults: list[Fault] = []

    def ask(self, request: Any, reply: Reply) -> None:
        """Carry `request` out half a round trip from now; `reply` gets each answer after the other half."""
        delay = int(MS * (0.2 + self._random()))
        chance = self._random()
        self._env.timeout(delay, (request, reply, delay, chance)).callbacks.append(self._arrive)

    def apply(self, request: Any) -> tuple[Answer, ...]:
        """Carry it out now."""
        self.state, answers = self._service.apply(self.state, request, self._env.now)
        if self._watch is not None:
            self._watch(request, answers)
        return answers

    def _arrive(self, event: Any) -> None:
        request, reply, delay, chance = event._value
        hit = next((chance / fault.rate for fault in self.faults if chance < fault.rate), 1.0)
        if hit >= 1.0:
            answers = self.apply(request)
        else:
            if hit < 0.5:
                self.apply(request)
            answers = (self._failed(request.n),)
        for answer in answers:
            self._env.timeout(delay, (reply, answer)).callbacks.append(_answer)


def _answer(event: Any) -> None:
    reply, answer = event._value
    reply(answer)
