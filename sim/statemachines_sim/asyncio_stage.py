"""AsyncioStage: a script on the asyncio runtime: the drivers that applications use, over a network in memory whose
deliveries the script decides, and time that moves from step to step.

Every node has a loop of its own, as every process has: one that stands still is not run.  A protocol's stage says how
its nodes begin, and what words of its own mean.

SteppedLoop: an asyncio loop whose time somebody else decides: nothing in it depends on how fast the machine is.

What is ready runs when `settle` is called, timers when the time has come, and work for a thread is done before the loop
goes on.  Loops that share a `Time` are like processes: one that is not run stands still.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVarTuple

from statemachines.drivers.memory import MemoryNetwork
from statemachines.kernel import Event, Node, RemoteProtocolError, Step, node_of
from statemachines.wire import Packet
from statemachines_sim.held_store import Work
from statemachines_spec.script.conductor import Conductor
from statemachines_spec.script.script import Script
from statemachines_spec.script.stage import CannotFollow, PartyStage

Ts = TypeVarTuple("Ts")


class Time:
    """Nanoseconds since the beginning."""

    def __init__(self) -> None:
        self.now_ns = 0

    def read_ns(self) -> int:
        """The time now."""
        return self.now_ns


class SteppedLoop(asyncio.SelectorEventLoop):
    """`settle()` runs what is ready or due; `deadline()` is when the next timer is."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self._time = time
        self._timers: list[tuple[int, int, asyncio.TimerHandle, Callable[[], object]]] = []
        self._number = 0
        self._posted = self._settled = 0

    def settle(self) -> bool:
        """Run until nothing is ready and no timer is due; whether anything was."""
        before = self._settled
        while True:
            posted = self._posted
            self._post_due()
            super().call_soon(self.stop)
            self.run_forever()
            if self._posted == posted:
                self._settled = posted
                return posted != before

    def deadline(self) -> int | None:
        """When the next timer is due, in nanoseconds; None: there is none."""
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def finish(self) -> None:
        """Cancel what is left, and close."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    # -- in place of what asyncio does ----------------------------------------------------------------------------

    def time(self) -> float:
        return self._time.now_ns / 1e9

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> events.Handle:
        self._posted += 1
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._number += 1

        def run() -> None:
            if not handle.cancelled():
                callback(*args)

        heappush(self._timers, (round(when * 1e9), self._number, handle, run))
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args) if executor is None else executor.submit(func, *args).result())
        except Exception as error:
            future.set_exception(error)
        return future

    def _post_due(self) -> None:
        while (due := self.deadline()) is not None and due <= self._time.now_ns:
            self.call_soon(heappop(self._timers)[3])


class AsyncioNode:
    """A node of the drivers and its loop: what judges want to know of a process, and what the stage needs of any."""

    clock = None

    def __init__(self, node: Any, time: Time) -> None:
        self.node = node
        self.loop = SteppedLoop(time)
        self.alive = True
        self.standing = False
        self.in_hand: list[Any] = []

    @property
    def host(self) -> Any:
        """Its machines."""
        return self.node.machines

    @property
    def life(self) -> str:
        """Its incarnation."""
        return str(self.node.machines.id)


class AsyncioStage(PartyStage):
    """The stage of a conductor; `work`: what stores have to carry out, on the loop `store_loop`, when no other runs."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.conductor = Conductor(script)
        self.time = Time()
        self.store_loop = SteppedLoop(self.time)
        self.work: list[Work] = []
        self.asking: dict[str, str] = {}
        self.nodes: dict[str, AsyncioNode] = {}
        self.failed: list[BaseException] = []
        self.refused: list[RemoteProtocolError] = []
        self.network = MemoryNetwork(self._gate)
        self._part = script.part

    def close(self) -> None:
        """Every node stops; nobody says goodbye, so that the logs end with the run."""
        for one in self.nodes.values():
            if one.alive:
                self.stop(one)
        self.store_loop.finish()

    def check(self) -> None:
        """Every invariant of every machine; raises `InvariantViolated`."""
        for _, one in sorted(self.nodes.items()):
            if one.alive:
                for _, node in sorted(one.host.nodes.items()):
                    node.check()

    # -- the stage ------------------------------------------------------------------------------------------------

    def advance(self, at_ns: int) -> None:
        """From deadline to deadline; at the last moment nothing has happened yet."""
        while True:
            running = [one.loop.deadline() for one in self._running()]
            due = min((deadline for deadline in running if deadline is not None), default=at_ns)
            if due >= at_ns:
                break
            self.time.now_ns = max(due, self.time.now_ns)
            self.settle()
        self.time.now_ns = max(at_ns, self.time.now_ns)

    def settle(self) -> None:
        while sum(one.loop.settle() for one in self._running()) or self.work:  # all of them: `any` stops at the first
            while self.work:
                self.store_loop.run_until_complete(self.work.pop(0)())
        if self.failed:
            raise self.failed.pop(0)

    def crash(self, node: str) -> None:
        one = self.live(node)
        self.network.kill(node)
        self.stop(one)

    def restart(self, node: str) -> None:
        if node in self.nodes and self.nodes[node].alive:
            raise CannotFollow(f"{node} is running")
        self.launch(node)
        self.settle()

    def pause(self, node: str) -> None:
        self.live(node).standing = True

    def wake(self, node: str) -> None:
        self.live(node).standing = False

    # -- what stages need -----------------------------------------------------------------------------------------

    def launch(self, node: str) -> None:
        """The next life of a node begins."""
        raise CannotFollow(f"{node} is gone for good")

    def enter(self, name: str, one: AsyncioNode) -> None:
        """A node of the drivers begins, on a loop of its own."""
        self.nodes[name] = one
        one.loop.set_exception_handler(lambda loop, context: self.failed.append(_error_of(context)))
        self.spawn(one, one.node.__aenter__())

    def stop(self, one: AsyncioNode) -> None:
        """It is gone, without a word."""
        one.alive = False
        one.loop.run_until_complete(one.node.abort())
        one.loop.finish()

    def spawn(self, one: AsyncioNode, work: Coroutine[Any, Any, Any]) -> None:
        """Something for it to do; what it raises is raised by `settle`."""
        task = one.loop.create_task(work)
        task.add_done_callback(lambda done: self._keep_error(one, done))

    def live(self, node: str) -> AsyncioNode:
        """The node; raises `CannotFollow` where it does not run."""
        one = self.nodes.get(node)
        if one is None or not one.alive:
            raise CannotFollow(f"{node} is not running")
        return one

    def observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every machine: the conductor hears of it; who stepped last is who asks."""
        name = node_of(node.name)
        if self.nodes[name].alive:
            self.asking[name] = node.name
            self.conductor.saw(name, node.fsm.name, event)
            self.watch_step(node, event, before, step, now_ns)

    def watch_step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """What judges hear of a step."""

    def _running(self) -> list[AsyncioNode]:
        return [one for one in self.nodes.values() if one.alive and not one.standing]

    def _keep_error(self, one: AsyncioNode, task: Any) -> None:
        if one.alive and not task.cancelled() and task.exception() is not None:
            self.failed.append(task.exception())

    def _gate(self, node: str, to: str, packet: Packet[Any], arrive: Callable[[], None]) -> None:
        self.conductor.send_message(self._part.words_of(packet.message, node, to), arrive, lambda: None)


def _error_of(context: dict[str, Any]) -> BaseException:
    error = context.get("exception")
    return error if isinstance(error, BaseException) else RuntimeError(str(context.get("message")))
