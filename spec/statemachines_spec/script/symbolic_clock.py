"""Symbolic time: step k of a run happens at k << 62, so that a deadline itself says in which step it was set, and for
how long.  Machines run as ever, and nothing they do depends on what the time is."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from statemachines.kernel import CancelTimer, Effects, Event, Fsm, SetTimer, Step, TimerFired

SHIFT: Final = 62


class Slot(NamedTuple):
    """One timer: whose, its name, the key of the child instance."""

    party: str
    timer: str
    key: str

    def __str__(self) -> str:
        return f"{self.timer} of {self.party}" + (f" for {self.key}" if self.key else "")


class SetTimerMoment(NamedTuple):
    """Set at a moment, for so long."""

    since: int
    for_ns: int
    soft: bool


class SymbolicClock:
    """The step of the moment, and the timers that are set."""

    def __init__(self) -> None:
        self.moment = 0
        self.armed: dict[Slot, SetTimerMoment] = {}
        self.fired: list[tuple[Slot, SetTimerMoment]] = []
        self.ended: list[tuple[Slot, SetTimerMoment]] = []
        self.silent: frozenset[str] = frozenset()

    @property
    def now_ns(self) -> int:
        return self.moment << SHIFT

    def note(self, party: str, effects: Effects) -> None:
        """What a step does to timers."""
        for effect in effects:
            if isinstance(effect, SetTimer):
                slot = Slot(party, effect.timer, effect.key)
                self.drop(slot)
                since, for_ns = divmod(effect.deadline_ns, 1 << SHIFT)
                self.armed[slot] = SetTimerMoment(since, for_ns, effect.timer in self.silent)
            elif isinstance(effect, CancelTimer):
                self.drop(Slot(party, effect.timer, effect.key))

    def drop(self, slot: Slot) -> None:
        armed = self.armed.pop(slot, None)
        if armed is not None:
            self.ended.append((slot, armed))


class TimedMachine(Fsm[Any]):
    """A machine whose steps happen at the moment of the clock, and whose timers it keeps.  `node`: the party's id,
    where its record has none."""

    def __init__(self, fsm: Fsm[Any], clock: SymbolicClock, node: str) -> None:
        vars(self).update(vars(fsm))
        self._shipped = fsm
        self._clock = clock
        self._node = node

    def start(self, record: Any, now_ns: int) -> Effects:
        effects = self._shipped.start(record, self._clock.now_ns)
        self._clock.note(self._party(record), effects)
        return effects

    def step(self, record: Any, event: Event, now_ns: int) -> Step[Any]:
        clock = self._clock
        if isinstance(event, TimerFired):
            names = (name for name, kind in self.timer_registry().items() if kind is type(event))
            slot = Slot(self._party(record), next(names), event.key)
            armed = clock.armed.pop(slot, None)
            if armed is not None and armed.since < clock.moment:
                clock.fired.append((slot, armed))
        step = self._shipped.step(record, event, clock.now_ns)
        clock.note(self._party(record), step.effects)
        if step.record.status in self.final:
            for slot in [slot for slot in clock.armed if slot.party == self._party(record)]:
                clock.drop(slot)
        return step

    def _party(self, record: Any) -> str:
        return getattr(record, "id", self._node)
