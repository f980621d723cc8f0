"""ProcessRunner: runs a declared process: its machine and its parties, each a `Node`.

Mutable here are the nodes, their deadlines, `moved`, and what is owed; everything else is in frozen records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statemachines.kernel.effect import Effect
from statemachines.kernel.errors import ProtocolError
from statemachines.kernel.event import Event, Message
from statemachines.kernel.fsm import Fsm
from statemachines.kernel.host import Host, Outgoing
from statemachines.kernel.node import Node, Observer
from statemachines.kernel.process import PROCESS, PartyState, Process, ProcessState
from statemachines.kernel.turn import ProcessTurn


class ProcessRunner(ProcessTurn, Host):
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
        Host.__init__(self)
        ProcessTurn.__init__(self, process, record.id)
        self._observe = observe
        self._check = check
        self._kinds: dict[str, str] = {}
        self._living: dict[str, int] = {}
        self._enter(PROCESS, self._node(process.fsm, record, now_ns))
        self._decide(process.begin(record), now_ns, [])

    @property
    def record(self) -> Any:
        return self.nodes[self.id].record

    def kind_of(self, party: str) -> str:
        return self._kinds.get(party, "")

    def record_of(self, party: str) -> Any:
        return self.nodes[party].record

    def receive(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """A message arrives for the party `to`; what comes of it."""
        return self.feed(*self.event_for(sender, to, message), now_ns)

    def feed(self, party: str, event: Event, now_ns: int) -> list[Outgoing]:
        ends = self._authority.heap
        out = self.fire_first(now_ns) if self._owed or self._soon.heap or (ends and ends[0][0] <= now_ns) else []
        if party not in self._kinds:
            return out
        try:
            fed = self._sort_out(party, self.take(party, event, now_ns), now_ns, out)
            if fed:
                self._run(fed, now_ns, out)
        except ProtocolError:
            self.moved = True
            self._owed = out  # the event is refused; what came before it has happened all the same
            raise
        return out

    def take(self, party: str, event: Event, now_ns: int) -> Iterable[Effect]:
        node = self.nodes[party]
        effects = node.feed(event, now_ns)
        if node.moved:
            self._schedule(node)
        return effects

    def end_overdue(self, now_ns: int) -> Iterable[Effect]:
        node = self.nodes[self.id]
        effects = node.fire_first(now_ns)
        self._schedule(node)
        return effects

    def begin(self, kind: str, party: str, record: Any, now_ns: int) -> None:
        fsm = self.process.check_begin(kind, party, self.id, self._living.get(kind, 0)).fsm
        self._enter(kind, self._node(fsm, record, now_ns))

    def remove(self, party: str) -> None:
        Host.remove(self, party)
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

    def _node(self, fsm: Fsm[Any], record: Any, now_ns: int) -> Node[Any]:
        return Node(fsm, record, name=record.id, now_ns=now_ns, observe=self._observe, check=self._check)

    def _enter(self, kind: str, node: Node[Any]) -> None:
        self._kinds[node.name] = kind
        self._living[kind] = self._living.get(kind, 0) + 1
        self.add(node)
