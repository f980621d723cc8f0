"""ProcessRunner: runs a declared process: its machine and its parties, each a `Node`.

A turn is: the event, what parties tell each other until nothing is left, continuations.  What a party tells the process
is taken at once; what the process feeds waits in a queue, in order.  Nothing that leaves the process is answered inside
a turn.  Mutable here are the nodes, their deadlines, `moved`, and what is owed; everything else is in frozen records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from statemachines.kernel.effect import Begin, Effect, Feed, Forget, Send, SendAs, Stop, Tell
from statemachines.kernel.errors import GaplessError, ProtocolError
from statemachines.kernel.event import Event, Message
from statemachines.kernel.fsm import Fsm
from statemachines.kernel.host import Host, Outgoing
from statemachines.kernel.node import Node, Observer
from statemachines.kernel.process import (
    APPLICATION,
    OUTSIDE,
    PROCESS,
    Arrived,
    Look,
    PartyState,
    Process,
    ProcessState,
    Route,
    Said,
)


class ProcessRunner(Host):
    """`record` is that of the process; its `id` is the life of the process (`consumer-1~3`)."""

    def __init__(
        self,
        process: Process[Any],
        record: Any,
        *,
        now_ns: int = 0,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        super().__init__()
        self.process = process
        self.id: str = record.id
        self._observe = observe
        self._check = check
        self._table = process.table
        self._diverts = process.diverts
        self._kinds: dict[str, str] = {}
        self._living: dict[str, int] = {}
        self._enter(PROCESS, self._node(process.fsm, record, self.id, now_ns))
        self._decide(process.begin(record), now_ns, [])

    @property
    def record(self) -> Any:
        """What the process knows."""
        return self.nodes[self.id].record

    def kind_of(self, party: str) -> str:
        """The kind of a party that lives ("": there is none)."""
        return self._kinds.get(party, "")

    def receive(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """A message arrives for the party `to`."""
        for route in self._table.get((OUTSIDE, type(message)), ()):
            if route.when is None or route.when(self.record, Arrived(sender, to, message)):
                target = self.process.target(route, self.id, message, to)
                if target in self.nodes and target != self.id:
                    return self.feed(target, message, now_ns)
                break
        return self.feed(self.id, Arrived(sender, to, message), now_ns)

    def feed(self, party: str, event: Event, now_ns: int) -> list[Outgoing]:
        ends = self._authority.heap
        out = self.fire_first(now_ns) if self._owed or self._soon.heap or (ends and ends[0][0] <= now_ns) else []
        node = self.nodes.get(party)
        if node is None or node.stopped:
            return out
        try:
            effects = node.feed(event, now_ns) if node.moved else node.take(event, now_ns)
            inward = self._sort_out(party, effects, now_ns, out)
            if node.moved:
                self._schedule(node)
            if inward:
                self._run(inward, now_ns, out)
        except ProtocolError:
            self.moved = True
            self._owed = out  # the event is refused; what came before it has happened all the same
            raise
        return out

    def remove(self, party: str) -> None:
        super().remove(party)
        kind = self._kinds.pop(party, "")
        if kind:
            self._living[kind] -= 1

    # -- values -------------------------------------------------------------------------------------------------

    def state(self) -> ProcessState:
        """The process as a value."""
        parties = (PartyState(kind, self.nodes[party].state()) for party, kind in sorted(self._kinds.items()))
        others = tuple(one for one in parties if one.kind != PROCESS)
        return ProcessState(self.nodes[self.id].state(), others, tuple(self._owed))

    @classmethod
    def from_state(
        cls, process: Process[Any], state: ProcessState, *, observe: Observer | None = None, check: bool = False
    ) -> ProcessRunner:  # fmt: skip
        """A process as the value says."""
        runner = cls(process, state.own.record, observe=observe, check=check)
        for party in list(runner.nodes):
            runner.remove(party)
        for one in (PartyState(PROCESS, state.own), *state.parties):
            node: Node[Any] = Node.from_state(process.fsm_of(one.kind), one.node, observe=observe, check=check)
            runner._enter(one.kind, node)
        runner._owed = list(state.owed)
        return runner

    # -- inside -------------------------------------------------------------------------------------------------

    def _node(self, fsm: Fsm[Any], record: Any, party: str, now_ns: int) -> Node[Any]:
        return Node(fsm, record, name=party, now_ns=now_ns, observe=self._observe, check=self._check)

    def _enter(self, kind: str, node: Node[Any]) -> None:
        self._kinds[node.name] = kind
        self._living[kind] = self._living.get(kind, 0) + 1
        self.add(node)

    def _run(self, events: Iterable[tuple[str, Event]], now_ns: int, out: list[Outgoing]) -> None:
        queue = deque(events)
        while queue:
            party, event = queue.popleft()
            node = self.nodes.get(party)
            if node is None or node.stopped:
                continue
            if party == self.id and isinstance(event, Look):
                seen = self._look(event)
                if seen is None:
                    continue
                event = seen
            queue.extend(self._sort_out(party, node.feed(event, now_ns), now_ns, out))
            if node.moved:
                self._schedule(node)

    def _look(self, event: Look) -> Look | None:
        """The event with what its party shows; None where the party is gone."""
        node, kind = self.nodes.get(event.party), self.kind_of(event.party)
        if node is None:
            return None
        view = self.process.kinds[kind].view
        if view is None:
            raise GaplessError(f"{self.process.name}: looks at {kind}, which shows nothing; give the kind a view")
        return replace(event, seen=view(node.record))

    def _sort_out(
        self, party: str, effects: Iterable[Effect], now_ns: int, out: list[Outgoing]
    ) -> list[tuple[str, Event]]:
        kind = self._kinds[party]
        if kind is PROCESS:
            return self._decide(effects, now_ns, out)
        inward: list[tuple[str, Event]] = []
        diverts = self._diverts
        for effect in effects:
            sort = type(effect)
            if sort is Tell:
                routes = self._table.get((kind, type(effect.event)))  # type: ignore[union-attr]
                if routes is None:
                    out.append((party, effect))
                else:
                    self._follow(routes, party, effect.event, now_ns, out, inward)  # type: ignore[union-attr]
            elif sort is Send and diverts is not None and diverts(self.record, effect.message):  # type: ignore[union-attr]
                inward += self._divert(party, effect, now_ns, out)  # type: ignore[arg-type]
            elif sort is Stop:
                self.remove(party)
            else:
                out.append((party, effect))
        return inward

    def _follow(
        self,
        routes: tuple[Route, ...],
        party: str,
        event: Event,
        now_ns: int,
        out: list[Outgoing],
        inward: list[tuple[str, Event]],
    ) -> None:
        """A `Tell` goes where the first route leads whose guard holds; without one, to the application."""
        for route in routes:
            if route.when is not None and not route.when(self.record, event):
                continue
            if route.to == APPLICATION:
                break
            fed = event if route.change is None else route.change(party, event)
            if route.to == PROCESS:
                inward += self._consult(fed, now_ns, out)
            else:
                inward.append((self.process.target(route, self.id, event), fed))
            if route.copied:
                break
            return
        out.append((party, Tell(event)))

    def _consult(self, event: Event, now_ns: int, out: list[Outgoing]) -> list[tuple[str, Event]]:
        """The process takes what a party says, at once."""
        node = self.nodes[self.id]
        inward = self._decide(node.feed(event, now_ns), now_ns, out)
        if node.moved:
            self._schedule(node)
        return inward

    def _divert(self, party: str, effect: Send, now_ns: int, out: list[Outgoing]) -> list[tuple[str, Event]]:
        """The process decides how a message goes, unless what it knew of that is over by now."""
        node = self.nodes[self.id]
        inward = self._decide(node.fire_first(now_ns), now_ns, out)
        if self._diverts is not None and self._diverts(node.record, effect.message):
            inward += self._decide(node.take(Said(party, effect.to, effect.message), now_ns), now_ns, out)
        else:
            out.append((party, effect))
        if node.moved:
            self._schedule(node)
        return inward

    def _decide(self, effects: Iterable[Effect], now_ns: int, out: list[Outgoing]) -> list[tuple[str, Event]]:
        """What the process wants done."""
        inward: list[tuple[str, Event]] = []
        for effect in effects:
            match effect:
                case Feed(party, event):
                    inward.append((party, event))
                case Begin(party, name, record):
                    living = sum(kind == name for kind in self._kinds.values()) if len(self._kinds) else 0
                    kind = self.process.check_begin(name, party, self.id, living)
                    self._enter(
                        name,
                        Node(kind.fsm, record, name=party, now_ns=now_ns, observe=self._observe, check=self._check),
                    )
                case Forget(party):
                    self.remove(party)
                case SendAs(to, message, speaker):
                    out.append((speaker, Send(to, message)))
                case Stop():
                    self.remove(self.id)
                case _:
                    out.append((self.id, effect))
        return inward
