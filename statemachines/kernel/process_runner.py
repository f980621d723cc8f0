"""ProcessRunner: runs a declared process: its machine and its parties, each a `Node`.

Mutable here are the nodes, their deadlines, `moved`, and what is owed; everything else is in frozen records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statemachines.kernel.effect import Effect
from statemachines.kernel.errors import GaplessError
from statemachines.kernel.event import Event, Message
from statemachines.kernel.host import Host, Outgoing
from statemachines.kernel.node import Node, Observer
from statemachines.kernel.process import PROCESS, LookAt, PartyState, Process, ProcessState
from statemachines.kernel.turn import ProcessTurn


class ProcessRunner(ProcessTurn, Host):
    """`record` is that of the process; its `id` is the life of the process (`server-1~3`); `nodes`: its parties.

    `observe` sees the steps of parties, `observe_own` those of the process; with `check=True` the invariants of both
    are checked.
    """

    def __init__(
        self,
        process: Process[Any],
        record: Any,
        *,
        now_ns: int = 0,
        observe: Observer | None = None,
        observe_own: Observer | None = None,
        check: bool = False,
    ) -> None:
        Host.__init__(self)
        ProcessTurn.__init__(self, process, record.id)
        self._observe = observe
        self._check = check
        self._kinds: dict[str, str] = {}
        self._living: dict[str, int] = {}
        self._fed = {}
        own = Node(process.fsm, record, name=record.id, now_ns=now_ns, observe=observe_own, check=check)
        self._enter(PROCESS, own)
        self._decide(process.begin(record), now_ns, [])

    @property
    def record(self) -> Any:
        return self._fed[self.id].record

    def kind_of(self, party: str) -> str:
        return self._kinds.get(party, "")

    def record_of(self, party: str) -> Any:
        return self.nodes[party].record

    def receive(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """A message arrives for the party `to`; what comes of it.  What is over by now ends before it is asked whose it
        is (D-291)."""
        out = self._end_first(now_ns)
        return self._feed(*self.event_for(sender, to, message), now_ns, out)

    def call(self, event: Event, now_ns: int) -> list[Outgoing]:
        """The application asks the process for something; what comes of it."""
        out = self._end_first(now_ns)
        if isinstance(event, LookAt):
            if not self.kind_of(event.party):
                return out
            event = self._look(event)
        return self._feed(self.id, event, now_ns, out)

    def feed(self, party: str, event: Event, now_ns: int) -> list[Outgoing]:
        return self._feed(party, event, now_ns, self._end_first(now_ns))

    def _end_first(self, now_ns: int) -> list[Outgoing]:
        """What comes before any event."""
        ends = self._authority.heap
        return self.fire_first(now_ns) if self._owed or self._soon.heap or (ends and ends[0][0] <= now_ns) else []

    def _feed(self, party: str, event: Event, now_ns: int, out: list[Outgoing]) -> list[Outgoing]:
        if party not in self._kinds:
            return out
        try:
            fed = self._sort_out(party, self.take(party, event, now_ns), now_ns, out)
            if fed:
                self._run(fed, now_ns, out)
        except GaplessError:
            self.moved = True
            self._owed = out  # the event is refused; what came before it has happened all the same
            raise
        return out

    def take(self, party: str, event: Event, now_ns: int) -> list[Effect]:
        node = self._fed[party]
        if node.stopped:
            return []
        effects = node.feed(event, now_ns)
        if node.moved:
            self._schedule(node)
        return effects

    def end_overdue(self, now_ns: int) -> Iterable[Effect]:
        node = self._fed[self.id]
        effects = node.fire_first(now_ns)
        self._schedule(node)
        return effects

    def begin(self, kind: str, party: str, record: Any, now_ns: int) -> None:
        fsm = self.process.check_begin(kind, party, self.id, self._living.get(kind, 0)).fsm
        node = Node(fsm, record, name=party, now_ns=now_ns, observe=self._observe, check=self._check)
        self._enter(kind, node)

    def remove(self, party: str) -> None:
        Host.remove(self, party)
        self.nodes.pop(party, None)
        kind = self._kinds.pop(party, "")
        if kind:
            self._living[kind] -= 1

    # -- values -------------------------------------------------------------------------------------------------

    def state(self) -> ProcessState:
        """The process as a value."""
        parties = (PartyState(self._kinds[party], node.state()) for party, node in sorted(self.nodes.items()))
        return ProcessState(self._fed[self.id].state(), tuple(parties), tuple(self._owed))

    @classmethod
    def from_state(
        cls, process: Process[Any], state: ProcessState, *, observe: Observer | None = None, check: bool = False
    ) -> ProcessRunner:  # fmt: skip
        """A process as the value says."""
        runner = cls(process, state.own.record, observe=observe, check=check)
        for party in list(runner._fed):
            runner.remove(party)
        for one in (PartyState(PROCESS, state.own), *state.parties):
            node: Node[Any] = Node.from_state(process.fsm_of(one.kind), one.node, observe=observe, check=check)
            runner._enter(one.kind, node)
        runner._owed = list(state.owed)
        return runner

    # -- inside -------------------------------------------------------------------------------------------------

    def _enter(self, kind: str, node: Node[Any]) -> None:
        self._kinds[node.name] = kind
        self._living[kind] = self._living.get(kind, 0) + 1
        if kind != PROCESS:
            self.nodes[node.name] = node
        self.add(node)
