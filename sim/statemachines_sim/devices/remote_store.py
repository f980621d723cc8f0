"""RemoteStore: a pure service behind a delay; it may fail, be slow, die, tear a batch, or lose its last moments.

It answers half a round trip after it has carried a request out, whoever has died meanwhile.  What a real store does by
its journal: a batch is written record by record and then an end mark; whoever dies in between finds a batch without its
mark when it comes back, and undoes it.  That is modelled for the requests of which `Batches` says that they are
batches; everything else happens wholly or not at all.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from statemachines.kernel import Answer, Request, Service
from statemachines_sim.clock import SimulatedClock
from statemachines_sim.cluster import OF_STORES, Fixture, SimCluster, Tolerance
from statemachines_sim.fault import Fault
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.node_life import NodeLife, Reply
from statemachines_sim.units import MS

CarriedOut = Callable[[str, str, Request, tuple[Answer, ...], int], None]
"""Hears (service, party, request, answers, time by the store) of everything that is carried out."""

Failed = Callable[[Any], Answer]
"""What the store answers to a request that fails, or whose outcome is open."""

SILENCE_NS = 2_500 * MS
"""After so long without an answer a request has failed for who asked (SS-432)."""

REMEMBERED_NS = 10_000 * MS
"""A store that may lose power remembers so much of its past."""


class Batches:
    """Which requests are written record by record; a base by which none is."""

    def size(self, request: Any, answers: tuple[Answer, ...]) -> int:
        """How many records `request` writes, to which the store would answer so; 0: it is no batch."""
        return 0

    def first(self, request: Any, count: int) -> Any:
        """The request with its first `count` records only."""
        return request


class RemoteStore:
    """`faults`: what fails or delays requests now; `clock`: its own, where it is not the true one; `down`: it is dead.

    `failed`: the answer to a request that fails; without it, a request that fails is never answered.
    """

    def __init__(
        self,
        env: SimulatedClock,
        service: Service[Any],
        seed: int,
        failed: Failed | None = None,
        carried_out: CarriedOut | None = None,
        batches: Batches | None = None,
        cuts: dict[tuple[str, str], int] | None = None,
    ) -> None:
        self._env = env
        self._service = service
        self._failed = failed
        self._carried_out = carried_out
        self._batches = batches or Batches()
        self._cuts = {} if cuts is None else cuts
        self._name = service.name
        self._random = random.Random(f"{seed}/{service.name}").random
        self._life = 0
        self._torn = False
        self._undo: Any = None
        self._past: deque[tuple[int, Any]] | None = None
        self.state = service.initial()
        self.clock: LocalClock | None = None
        self._set_ns: int | None = None
        self._shown_ns = 0
        self.faults: list[Fault] = []
        self.down = False

    def ask(self, process: NodeLife, party: str, request: Any, reply: Reply) -> None:
        """Carry `request` of `party` out half a round trip from now; `reply` gets each answer after the other half."""
        delay = int(MS * (0.2 + self._random()))
        chance = self._random()
        if self._cuts and self._ask_cut(process.node, party, request, reply, delay, chance):
            return
        self._env.timeout(delay, (request, reply, delay, chance, party)).callbacks.append(self._arrive)

    def apply(self, request: Any, party: str = "") -> tuple[Answer, ...]:
        """Carry it out now."""
        now_ns = self._time()
        before = self.state
        self.state, answers = self._service.apply(before, request, now_ns)
        if self._past is not None and self.state is not before:
            self._remember(before)
        if self._carried_out is not None:
            self._carried_out(self._name, party, request, answers, now_ns)
        return answers

    def _time(self) -> int:
        """What it takes for the time: no less than it did before, whatever its wall clock shows."""
        now_ns = self._env.now if self.clock is None else self.clock.local(self._env.now)
        if self._set_ns is not None:
            now_ns = self._shown_ns = max(now_ns + self._set_ns, self._shown_ns + 1)
        return now_ns

    # -- faults ---------------------------------------------------------------------------------------------------

    def set_clock(self, by_ns: int) -> None:
        """Its wall clock shows so much more from now on, or less."""
        self._shown_ns = self._time()
        self._set_ns = (self._set_ns or 0) + by_ns

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

    def heal(self) -> None:
        """Nothing fails any more, and it lives."""
        self.faults.clear()
        self._torn = False
        if self.down:
            self.restart()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _ask_cut(self, node: str, party: str, request: Any, reply: Reply, delay: int, chance: float) -> bool:
        """Whether something is cut between the node and the store: the request, or its answer, never arrives, and who
        asked gives it up after a silence."""
        there, back = (node, self._name) in self._cuts, (self._name, node) in self._cuts
        if there:
            self._answer(self._failure(request), request, reply, SILENCE_NS)
        elif back:

            def lose(answer: Answer) -> None:
                self._answer(self._failure(request), request, reply, SILENCE_NS - 2 * delay)

            self._env.timeout(delay, (request, lose, delay, chance, party)).callbacks.append(self._arrive)
        return there or back

    def _failure(self, request: Any) -> tuple[Answer, ...]:
        return () if self._failed is None else (self._failed(request),)

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
            self._answer(self._failure(request), request, reply, delay)
            return
        answers = () if self.down else self._carry_out(request, chance, party)
        self._answer(answers or self._failure(request), request, reply, delay)

    def _carry_out(self, request: Any, chance: float, party: str) -> tuple[Answer, ...]:
        """The answers; none if the store died of it."""
        size = 0
        if self._torn:
            _, answers = self._service.apply(self.state, request, self._env.now)
            size = self._batches.size(request, answers)
        if not size:
            return self.apply(request, party)
        written = int(chance * 7919) % (size + 1)
        if written == size:
            self.apply(request, party)  # the end mark was written; only the answer is missing
        else:
            self._undo = self.state
            part = self._batches.first(request, written)
            self.state, _ = self._service.apply(self.state, part, self._env.now)
        self.crash()
        return ()

    def _answer(self, answers: tuple[Answer, ...], request: Any, reply: Reply, delay: int) -> None:
        for answer in answers:
            self._env.timeout(delay, (reply, answer, request, self._life)).callbacks.append(self._reply)

    def _reply(self, event: Any) -> None:
        reply, answer, request, life = event._value
        if life == self._life:
            reply(answer)
        else:
            for failure in self._failure(request):
                reply(failure)

    def _remember(self, before: Any) -> None:
        past = self._past
        assert past is not None
        past.append((self._env.now, before))
        while past[0][0] < self._env.now - REMEMBERED_NS:
            past.popleft()


def recover(state: Any, undo: Any) -> Any:
    """What a store finds in its journal; `undo`: the state before a batch without an end mark (None: there is none)."""
    return state if undo is None else undo


def remote_store(
    service: Service[Any],
    *,
    failed: Failed | None = None,
    batches: Batches | None = None,
    faults: tuple[str, ...] = OF_STORES,
    clock: Tolerance | None = None,
) -> Fixture:
    """The service as a device behind a network."""

    def make(world: SimCluster) -> RemoteStore:
        watched = world.watch.observe_request if world.watching else None
        return RemoteStore(world.env, service, world.seed, failed, watched, batches, world.network.cuts)

    return Fixture(service.name, make, faults, clock or Tolerance())
