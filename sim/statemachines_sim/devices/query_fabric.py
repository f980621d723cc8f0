"""QueryFabric: one question, many answers and an end, as a query over a publish-subscribe network has it.

A query travels to every node that it concerns; each that lives answers as often as it likes, each answer travels by
itself, and the end comes when the last has answered, or when the time is up: whoever has died, or is cut off, does not
hold it up for longer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from statemachines.kernel import Answer, Request
from statemachines_sim.cluster import Fixture, SimCluster
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.node_life import NodeLife, Reply
from statemachines_sim.units import MS

Answers = Callable[["NodeLife", Any], Iterable[Answer]]
"""What a process answers to a query."""


class FabricQuery:
    """One that goes on: `left`, how many nodes have not answered yet."""

    def __init__(self, request: Request, reply: Reply, left: int) -> None:
        self.request = request
        self.reply = reply
        self.left = left
        self.ended = False


class QueryFabric:
    """`asked(request)` names the nodes; `answers(process, request)` is what one of them says; `end(request)` the last
    answer, after `timeout_ns` at the latest."""

    clock: LocalClock | None = None

    def __init__(
        self,
        world: SimCluster,
        name: str,
        asked: Callable[[Any], Iterable[str]],
        answers: Answers,
        end: Callable[[Any], Answer],
        timeout_ns: int,
    ) -> None:
        self._world = world
        self._name = name
        self._asked = asked
        self._answers = answers
        self._end = end
        self._timeout_ns = timeout_ns
        self._chance = random.Random(f"{world.seed}/{name}")

    def ask(self, process: NodeLife, party: str, request: Request, reply: Reply) -> None:
        """The query sets out now."""
        nodes = tuple(self._asked(request))
        query = FabricQuery(request, reply, len(nodes))
        for node in nodes:
            if not self._is_cut(process.node, node):
                self._world.after(self._delay(), self._reach, query, node, process.node)
        self._world.after(self._timeout_ns if nodes else self._delay(), self._finish, query)

    def heal(self) -> None:
        """Its faults are those of the network and of processes."""

    def _reach(self, query: FabricQuery, node: str, asker: str) -> None:
        process = self._world.living(node)
        if process is not None:
            process.run(partial(self._answer, query, process, asker))

    def _answer(self, query: FabricQuery, process: NodeLife, asker: str) -> None:
        if self._is_cut(process.node, asker):
            return
        last = 0
        for answer in self._answers(process, query.request):
            delay = self._delay()
            last = max(last, delay)
            self._world.after(delay, self._hand_over, query, answer)
        self._world.after(last or self._delay(), self._done, query)

    def _hand_over(self, query: FabricQuery, answer: Answer) -> None:
        if not query.ended:
            query.reply(answer)

    def _done(self, query: FabricQuery) -> None:
        query.left -= 1
        if not query.left:
            self._finish(query)

    def _finish(self, query: FabricQuery) -> None:
        if not query.ended:
            query.ended = True
            query.reply(self._end(query.request))

    def _is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self._world.network.cuts

    def _delay(self) -> int:
        low, high = self._world.scenario.network.delay_ms
        return self._chance.randint(low * MS, high * MS)


def query_fabric(
    name: str,
    *,
    asked: Callable[[Any], Iterable[str]],
    answers: Answers,
    end: Callable[[Any], Answer],
    timeout_ns: int = 1_000 * MS,
) -> Fixture:
    """Queries as a device."""
    return Fixture(name, lambda world: QueryFabric(world, name, asked, answers, end, timeout_ns), faults=())
