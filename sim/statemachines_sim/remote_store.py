"""Store: a pure service behind a delay; it may fail, be slow, die, tear a batch, or lose its last moments.

What a real store does by its journal: a batch is written record by record and then an end mark; whoever dies in between
finds a batch without its mark when it comes back, and undoes it.  Here that is modelled for the batches of the group
store; appends to the stream store, and everything that reads, happen wholly or not at all.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer, Request, Service
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.group_store import Commit, Committed
from statemachines_sim.clock import Clock
from statemachines_sim.fault import Fault
from statemachines_sim.local_clock import LocalClock

Reply = Callable[[Answer], None]
Watch = Callable[[str, Request, tuple[Answer, ...], int], None]
"""Hears (party, request, answers, time by the store) of everything that is carried out."""

REMEMBERED_NS = 10_000 * MS
"""A store that may lose power remembers so much of its past."""


class Store:
    """`failed(n)` makes the answer to a request `n` that fails.  `faults`: what fails or delays requests now; `clock`:
    its own, where it is not the true one; `down`: it is dead."""

    def __init__(
        self,
        env: Clock,
        service: Service[Any],
        seed: int,
        failed: Callable[[int], Answer],
        watch: Watch | None = None,
    ) -> None:
        self._env = env
        self._service = service
        self._failed = failed
        self._watch = watch
        self._random = random.Random(f"{seed}/{service.name}").random
        self._life = 0
        self._torn = False
        self._undo: Any = None
        self._past: deque[tuple[int, Any]] | None = None
        self.state = service.initial()
        self.clock: LocalClock | None = None
        self.faults: list[Fault] = []
        self.down = False

    def ask(self, request: Any, reply: Reply, party: str = "") -> None:
        """Carry `request` of `party` out half a round trip from now; `reply` gets each answer after the other half."""
        delay = int(MS * (0.2 + self._random()))
        chance = self._random()
        self._env.timeout(delay, (request, reply, delay, chance, party)).callbacks.append(self._arrive)

    def apply(self, request: Any, party: str = "") -> tuple[Answer, ...]:
        """Carry it out now."""
        now_ns = self._env.now if self.clock is None else self.clock.local(self._env.now)
        before = self.state
        self.state, answers = self._service.apply(before, request, now_ns)
        if self._past is not None and self.state is not before:
            self._remember(before)
        if self._watch is not None:
            self._watch(party, request, answers, now_ns)
        return answers

    # -- faults ---------------------------------------------------------------------------------------------------

    def tear_next(self, torn: bool = True) -> None:
        """The next batch is the last thing it does in this life; or, with False, it is not."""
        self._torn = torn

    def keep_past(self) -> None:
        """It will lose power: what it loses then must be known."""
        self._past = deque()

    def crash(self, lost_ns: int = 0) -> None:
        """Die: what was asked and not answered fails; without a disk, what was committed in the last `lost_ns` goes."""
        self.down = True
        self._life += 1
        while self._past and self._past[-1][0] > self._env.now - lost_ns:
            _, self.state = self._past.pop()

    def restart(self) -> None:
        """Come back with what is durable."""
        self.down = self._torn = False
        self.state, self._undo = recover(self.state, self._undo), None

    def end_faults(self) -> None:
        """Nothing fails any more, and it lives."""
        self.faults.clear()
        self._torn = False
        if self.down:
            self.restart()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _arrive(self, event: Any) -> None:
        request, reply, delay, chance, party = event._value
        if self.faults or self.down or self._torn:
            self._arrive_faulty(request, reply, delay, chance, party)
        else:
            self._answer(self.apply(request, party), request, reply, delay)

    def _arrive_faulty(self, request: Any, reply: Reply, delay: int, chance: float, party: str) -> None:
        """The first fault whose share the request falls into hits it."""
        for fault in self.faults:
            if chance >= fault.rate:
                continue
            hit = chance / fault.rate
            if fault.kind == "slow_store":
                # It is asked again when it has waited; by then it is nobody's share any more.
                later = (request, reply, delay, 1.0, party)
                self._env.timeout(int(hit * fault.amount), later).callbacks.append(self._arrive)
                return
            if hit < 0.5 and not self.down:
                self._carry_out(request, chance, party)
            self._answer((self._failed(request.n),), request, reply, delay)
            return
        answers = () if self.down else self._carry_out(request, chance, party)
        self._answer(answers or (self._failed(request.n),), request, reply, delay)

    def _carry_out(self, request: Any, chance: float, party: str) -> tuple[Answer, ...]:
        """The answers; none if the store died of it."""
        if not self._torn or not isinstance(request, Commit):
            return self.apply(request, party)
        _, answers = self._service.apply(self.state, request, self._env.now)
        if not isinstance(answers[0], Committed):
            return self.apply(request, party)
        written = int(chance * 7919) % (len(request.put) + 1)
        if written == len(request.put):
            self.apply(request, party)  # the end mark was written; only the answer is missing
        else:
            self._undo = self.state
            self.state, _ = self._service.apply(self.state, replace(request, put=request.put[:written]), self._env.now)
        self.crash()
        return ()

    def _answer(self, answers: tuple[Answer, ...], request: Any, reply: Reply, delay: int) -> None:
        for answer in answers:
            self._env.timeout(delay, (reply, answer, request, self._life)).callbacks.append(self._reply)

    def _reply(self, event: Any) -> None:
        reply, answer, request, life = event._value
        reply(answer if life == self._life else self._failed(request.n))

    def _remember(self, before: Any) -> None:
        past = self._past
        assert past is not None
        past.append((self._env.now, before))
        while past[0][0] < self._env.now - REMEMBERED_NS:
            past.popleft()


def recover(state: Any, undo: Any) -> Any:
    """What a store finds in its journal; `undo`: the state before a batch without an end mark (None: there is none)."""
    return state if undo is None else undo
