"""Node = record + machine + armed timers: what an application embeds.

    node = Node(fsm, record, name="server-1", now_ns=now)
    for effect in node.feed(event, now): ...        # Send, Ask, Tell, Stop; timers stay inside
    wake me at node.deadline()                      # then node.fire(now)

Before it takes an event a node fires the timers of authority that are due, and then those that were set for a moment
that was there already: what goes on at once (a continuation).  All others have patience: `fire` fires them, which its
driver calls after what one turn of its loop brought.  So a process that wakes from a long pause meets its expired lease
before the message that woke it, and hears the answer that waited before it gives anybody up for the lack of it.  Within
a class timers fire in (deadline, name, key) order.  A node is not re-entrant: an event that comes up while effects are
performed waits its turn in the driver's queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

import msgspec

from statemachines.kernel.effect import CancelTimer, Effect, Send, SetTimer, Stop
from statemachines.kernel.errors import InvariantViolated, LocalProtocolError, ProtocolError
from statemachines.kernel.event import Event, name_of
from statemachines.kernel.fsm import Fsm, Step
from statemachines.kernel.pmap import dec_hook, enc_hook

R = TypeVar("R", bound=msgspec.Struct)

FULL_CHECK_EVERY = 1_000
"""Invariants are checked on what a step touched, and in full after this many events."""


class NodeState(msgspec.Struct, frozen=True, gc=False):
    """A node as a value.  `timers`: (name, key, deadline) of those that are armed, sorted; `soon`: (deadline, name,
    key) of the continuations among them; `owed`: effects since a refused event."""

    name: str
    record: Any
    timers: tuple[tuple[str, str, int], ...] = ()
    soon: tuple[tuple[int, str, str], ...] = ()
    owed: tuple[Effect, ...] = ()


Observer = Callable[["Node[Any]", Event, Any, Step[Any], int], None]
"""Called after each step with (node, event, status before, step, now_ns), before any effect is performed."""


class Node(Generic[R]):
    """One machine with its timers.

    `name` is the id of the party (stands in traces); `engine="transitions"` has its machine step by that library
    (`Fsm.use_engine`; "": as the machine does); `observe` sees every step; with `check=True` the invariants of
    the machine are checked and `InvariantViolated` names the one that broke.  `moved` is set whenever `deadline()` may
    have changed: who asks for it clears it, and need not ask again before it is set.
    """

    __slots__ = (
        "_armed",
        "_authority",
        "_check",
        "_events",
        "_first",
        "_heap",
        "_observe",
        "_owed",
        "_soon",
        "_timers",
        "fsm",
        "moved",
        "name",
        "record",
        "stopped",
    )

    def __init__(
        self,
        fsm: Fsm[R],
        record: R,
        *,
        name: str,
        now_ns: int,
        observe: Observer | None = None,
        check: bool = False,
        engine: str = "",
    ) -> None:
        if engine:
            fsm.use_engine(engine)
        self.fsm = fsm
        self.record = record
        self.name = name
        self.stopped = False
        self.moved = True
        self._observe = observe
        self._check = check
        self._events = 0
        self._owed: list[Effect] = []
        self._timers = fsm.timer_registry()
        self._authority = fsm.authority
        self._armed: dict[tuple[str, str], int] = {}
        self._heap: list[tuple[int, str, str]] = []
        self._first: list[tuple[int, str, str]] = []
        self._soon: list[tuple[int, str, str]] = []
        self._keep_timers(fsm.start(record, now_ns), now_ns)

    def feed(self, event: Event, now_ns: int) -> list[Effect]:
        """Fire what comes before any event, then take the step; the effects of all of it, in order."""
        first = self._first
        if not self._owed and not self._soon and not (first and first[0][0] <= now_ns):
            return list(self.take(event, now_ns))
        effects = self.fire_first(now_ns)
        if self.stopped and effects:
            return effects  # a due timer stopped the machine: the event came too late, as to a dead process
        try:
            return [*effects, *self.take(event, now_ns)]
        except ProtocolError:
            self._owed = effects  # the event is refused; what fired before it has happened all the same
            raise

    def take(self, event: Event, now_ns: int) -> Sequence[Effect]:
        """The step alone, for a host that has fired what comes before it; its effects, in order."""
        if self.stopped:
            raise LocalProtocolError(
                self.fsm.name, "stopped", name_of(type(event)), "", f"{self.name} has stopped; start a new one"
            )
        before = self.record
        step = self.fsm.step(before, event, now_ns)
        self.record = record = step.record
        if self._observe is not None:
            self._observe(self, event, before.status, step, now_ns)  # type: ignore[attr-defined]
        if self._check:
            self._check_touched(event, step.row)
        effects: Sequence[Effect] = step.effects
        for effect in effects:
            if type(effect) is not Send:  # most are
                effects = self._keep_timers(effects, now_ns)
                break
        if record.status in self.fsm.final:  # type: ignore[attr-defined]
            self._stop()
        return effects

    def fire(self, now_ns: int) -> list[Effect]:
        """Fire every timer that is due at `now_ns`; its effects, and those owed since a refused event."""
        effects, self._owed = self._owed, []
        self.moved = True
        while (deadline := self.deadline()) is not None and deadline <= now_ns:
            effects += self.fire_one(now_ns)
        return effects

    def fire_first(self, now_ns: int) -> list[Effect]:
        """Fire what comes before any event, and no other timer; its effects, and those owed since a refused event."""
        effects, self._owed = self._owed, []
        self.moved = True
        while self._next_first(now_ns) is not None:
            effects += self.fire_one(now_ns)
        return effects

    def fire_one(self, now_ns: int) -> list[Effect]:
        """Fire the one timer whose turn it is, of those that are due: authority, then what goes on at once, then
        patience, each by its deadline; its effects.  What is owed since a refused event comes before all of them."""
        if self._owed:
            effects, self._owed = self._owed, []
            self.moved = True
            return effects
        due = self._next_first(now_ns)
        if due is None:
            deadline = self.deadline()
            if deadline is None or deadline > now_ns:
                return []
            due = self._heap[0]
        _, timer, key = due
        if due == self._heap[0]:
            heappop(self._heap)  # another place of it goes when it comes up
        self.moved = True
        del self._armed[timer, key]
        return list(self.take(self._timers[timer](key), now_ns))

    def deadline(self) -> int | None:
        """When the earliest timer is due, in nanoseconds; None: never; 0: `fire` has effects to give at once."""
        if self._owed:
            return 0
        heap = self._heap
        while heap:
            deadline, timer, key = heap[0]
            actual = self._armed.get((timer, key))
            if actual == deadline:
                return deadline
            heappop(heap)
            if actual is not None and actual > deadline:
                heappush(heap, (actual, timer, key))
        return None

    def authority_deadline(self) -> int | None:
        """When the earliest timer of authority is due, in nanoseconds; None: never."""
        first = self._first_authority() if self._first else None
        return None if first is None else first[0]

    def continuation_deadline(self) -> int | None:
        """The moment, over already, for which the first continuation was set, in nanoseconds; None: there is none."""
        first = self._first_continuation() if self._soon else None
        return None if first is None else first[0]

    def deadline_of(self, timer: str, key: str = "") -> int | None:
        """When this timer is due, in nanoseconds; None: it is not armed."""
        return self._armed.get((timer, key))

    def armed_timers(self) -> dict[tuple[str, str], int]:
        """The armed timers: (name, key) -> deadline in nanoseconds, sorted."""
        return dict(sorted(self._armed.items()))

    def state(self) -> NodeState:
        """The node as a value; `from_state` is its inverse."""
        timers = tuple((timer, key, deadline) for (timer, key), deadline in sorted(self._armed.items()))
        soon = tuple(sorted({one for one in self._soon if self._armed.get(one[1:]) == one[0]}))
        return NodeState(self.name, self.record, timers, soon, tuple(self._owed))

    @classmethod
    def from_state(
        cls, fsm: Fsm[R], state: NodeState, *, observe: Observer | None = None, check: bool = False
    ) -> Node[R]:  # fmt: skip
        """A node as the value says."""
        node = cls(fsm, state.record, name=state.name, now_ns=0, observe=observe, check=check)
        node._armed = {(timer, key): deadline for timer, key, deadline in state.timers}
        node._heap = sorted((deadline, timer, key) for timer, key, deadline in state.timers)
        node._soon = list(state.soon)
        node._first = [one for one in node._heap if one[1] in node._authority]
        node._owed = list(state.owed)
        node.stopped = state.record.status in fsm.final
        return node

    def snapshot(self) -> bytes:
        """The record and the armed timers as JSON; `restore` is its inverse."""
        state = self.state()
        kept = {"machine": self.fsm.full_name, "name": state.name, "record": state.record}
        return msgspec.json.encode({**kept, "timers": state.timers, "soon": state.soon}, enc_hook=enc_hook)

    @classmethod
    def restore(cls, fsm: Fsm[R], snapshot: bytes, *, observe: Observer | None = None, check: bool = False) -> Node[R]:
        """A node as it was when `snapshot` was taken."""
        raw = msgspec.json.decode(snapshot)
        if raw.get("machine") != fsm.full_name:
            raise LocalProtocolError(fsm.name, "-", "restore", "", f"the snapshot is of a {raw.get('machine')!r}")
        record = msgspec.convert(raw["record"], fsm.record_type, dec_hook=dec_hook)
        timers, soon = (tuple(tuple(one) for one in raw.get(name, ())) for name in ("timers", "soon"))
        return cls.from_state(fsm, NodeState(raw["name"], record, timers, soon), observe=observe, check=check)

    def check(self) -> None:
        """Check every invariant in full; raises `InvariantViolated`."""
        for invariant in self.fsm.invariants:
            if not invariant.holds(self.record):
                raise InvariantViolated(self.fsm.name, invariant.name, self.record)

    def _next_first(self, now_ns: int) -> tuple[int, str, str] | None:
        """The timer that fires before any event."""
        first = self._first_authority() if self._first else None
        if first is not None and first[0] <= now_ns:
            return first
        return self._first_continuation() if self._soon else None

    def _first_continuation(self) -> tuple[int, str, str] | None:
        """The earliest of the timers that were set for a moment that was there, and not set anew."""
        soon = self._soon
        while soon and self._armed.get(soon[0][1:]) != soon[0][0]:
            heappop(soon)
        return soon[0] if soon else None

    def _first_authority(self) -> tuple[int, str, str] | None:
        """The earliest armed timer of authority."""
        heap = self._first
        while heap:
            deadline, timer, key = heap[0]
            actual = self._armed.get((timer, key))
            if actual == deadline:
                return heap[0]
            heappop(heap)
            if actual is not None and actual > deadline:
                heappush(heap, (actual, timer, key))
        return None

    def _keep_timers(self, effects: Iterable[Effect], now_ns: int) -> list[Effect]:
        """Timers stay here; with everything else the driver is to deal."""
        out: list[Effect] = []
        for effect in effects:
            kind = type(effect)
            if kind is SetTimer:
                self._arm(effect, now_ns)  # type: ignore[arg-type]
            elif kind is CancelTimer:
                self.moved = True
                self._armed.pop((effect.timer, effect.key), None)  # type: ignore[union-attr]
            else:
                if kind is Stop:
                    self._stop()
                out.append(effect)
        return out

    def _arm(self, effect: SetTimer, now_ns: int) -> None:
        self.moved = True
        armed = self._armed
        slot = (effect.timer, effect.key)
        earlier = armed.get(slot)
        armed[slot] = effect.deadline_ns
        if effect.deadline_ns <= now_ns and effect.timer not in self._authority:
            heappush(self._soon, (effect.deadline_ns, *slot))
        # A timer moved to later keeps its place in the heap: `deadline` moves it when it comes up.
        if earlier is None or effect.deadline_ns < earlier:
            heappush(self._heap, (effect.deadline_ns, *slot))
            if effect.timer in self._authority:
                self._keep_first((effect.deadline_ns, *slot))
            if len(self._heap) > 64 and len(self._heap) > 4 * len(armed):
                self._heap = sorted((deadline, *slot) for slot, deadline in armed.items())

    def _keep_first(self, armed: tuple[int, str, str]) -> None:
        heappush(self._first, armed)
        if len(self._first) > 64 and len(self._first) > 4 * len(self._armed):
            self._first = sorted((at, *slot) for slot, at in self._armed.items() if slot[0] in self._authority)

    def _stop(self) -> None:
        self.stopped = True
        self.moved = True
        self._armed.clear()
        self._heap.clear()
        self._first.clear()
        self._soon.clear()

    def _check_touched(self, event: Event, row: int) -> None:
        self._events += 1
        full = self._events % FULL_CHECK_EVERY == 0
        for invariant in self.fsm.invariants:
            if full or invariant.touched is None:
                held = invariant.holds(self.record)
            else:
                held = invariant.touched(self.record, event)
            if not held:
                raise InvariantViolated(self.fsm.name, invariant.name, self.record, event, row)
