"""Party: a node as the explorer knows it: the record of a shipped machine, and which of its timers are set.

A timer that was taken back never fires, unless the party is a `LateParty`: over a real event loop its firing may
already stand in a queue.  Then it may fire once more, at any time until it is set again or the node ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from statemachines.kernel import CancelTimer, Effect, Effects, Event, Fsm, SetTimer, TimerFired, name_of
from statemachines_spec.explorer.actor import Seen, Watch
from statemachines_spec.explorer.symmetry import Names, renamed

Timer = tuple[str, str]
"""(name, key of the child instance)"""


class Party(msgspec.Struct, frozen=True, gc=False):
    """One node; `timers` is sorted."""

    record: Any
    timers: tuple[Timer, ...] = ()

    def renamed(self, names: Names) -> Party:
        """As `symmetry.renamed` needs it: the timers are sorted again."""
        return Party(renamed(self.record, names), tuple(sorted(renamed(self.timers, names))))


class LateParty(Party, frozen=True, gc=False):
    """One node whose timers of before may still fire: those in `late`, sorted, were taken back."""

    late: tuple[Timer, ...] = ()

    def renamed(self, names: Names) -> LateParty:
        """As that of `Party`."""
        timers = (tuple(sorted(renamed(some, names))) for some in (self.timers, self.late))
        return LateParty(renamed(self.record, names), *timers)


class LateFiring(Event, frozen=True, gc=False):
    """A timer that was taken back fires all the same."""

    timer: str
    key: str


def begin(fsm: Fsm[Any], record: Any, late: bool = False, now_ns: int = 0) -> Party:
    """A node that has just been made: the timers of its first state are set."""
    timers = _timers((), fsm.start(record, now_ns))
    return LateParty(record, timers) if late else Party(record, timers)


def firings(fsm: Fsm[Any], party: Party, silent: frozenset[str]) -> Iterator[Event]:
    """The firing of each timer that is set, or was taken back and is not quite gone."""
    registry = fsm.timer_registry()
    for name, key in party.timers:
        if name not in silent:
            yield registry[name](key)
    if isinstance(party, LateParty):
        for name, key in party.late:
            yield LateFiring(name, key)


def fired_late(fsm: Fsm[Any], party: Party, event: LateFiring) -> tuple[Party, Event]:
    """The node without that firing in its queue, and what the machine takes."""
    assert isinstance(party, LateParty)
    rest = tuple(timer for timer in party.late if timer != (event.timer, event.key))
    return replace(party, late=rest), fsm.timer_registry()[event.timer](event.key)


def advance(
    fsm: Fsm[Any], party: Party, event: Event, name: str, watch: Watch | None = None
) -> tuple[Party, list[Effect]]:
    """One step of the shipped machine: the node afterwards, and its effects without those on timers."""
    party, effects = stepped(fsm, party, event, name, watch)
    return party, [effect for effect in effects if not isinstance(effect, SetTimer | CancelTimer)]


def stepped(
    fsm: Fsm[Any], party: Party, event: Event, name: str, watch: Watch | None = None, now_ns: int = 0
) -> tuple[Party, Effects]:
    """One step of the shipped machine: the node afterwards, and all its effects."""
    armed = party.timers
    if isinstance(event, TimerFired):
        fired = (timer_of(fsm, event), event.key)
        armed = tuple(timer for timer in armed if timer != fired)
    record = party.record
    step = fsm.step(record, event, now_ns) if watch is None else _watched(fsm, name, record, event, now_ns, watch)
    timers = () if step.record.status in fsm.final else _timers(armed, step.effects)
    if isinstance(party, LateParty):
        return LateParty(step.record, timers, _late(party.late, armed, timers, step.effects)), step.effects
    return Party(step.record, timers), step.effects


def _late(
    late: tuple[Timer, ...], armed: tuple[Timer, ...], timers: tuple[Timer, ...], effects: Effects
) -> tuple[Timer, ...]:
    """Those that were armed before and taken back now, beside those of before; not one that is set again."""
    taken = {(one.timer, one.key) for one in effects if isinstance(one, CancelTimer)} & set(armed)
    return tuple(sorted((taken | set(late)) - set(timers)))


def _timers(timers: tuple[Timer, ...], effects: Effects) -> tuple[Timer, ...]:
    kept = set(timers)
    for effect in effects:
        if isinstance(effect, SetTimer):
            kept.add((effect.timer, effect.key))
        elif isinstance(effect, CancelTimer):
            kept.discard((effect.timer, effect.key))
    return tuple(sorted(kept))


def timer_of(fsm: Fsm[Any], event: TimerFired) -> str:
    """The name of the timer that fires so; raises `KeyError` where there is none."""
    for name, kind in fsm.timer_registry().items():
        if kind is type(event):
            return name
    raise KeyError(f"{fsm.name} has no timer that fires {name_of(type(event))}")


def _watched(fsm: Fsm[Any], name: str, before: Any, event: Event, now_ns: int, watch: Watch) -> Any:
    """The step, written down; one that raises leaves a line without a record after it."""
    took = name_of(type(event))
    status, full = str(before.status.value), fsm.full_name
    seen = Seen(name, fsm.name, "", took, status, "", -1, "", fsm, event, before, None, full, now_ns)
    try:
        step = fsm.step(before, event, now_ns)
    except Exception:
        watch.append(seen)
        raise
    dest = str(step.record.status.value)
    clause = fsm.lines[step.row].clause if step.row >= 0 else ""
    watch.append(replace(seen, dest=dest, row=step.row, clause=clause, after=step.record))
    for child in step.children:
        clause = cast(Fsm[Any], child.fsm).lines[child.row].clause if child.row >= 0 else ""
        came, went, fed = str(child.source.value), str(child.dest.value), name_of(type(child.event))
        full = child.full_machine
        watch.append(Seen(name, child.machine, child.instance, fed, came, went, child.row, clause, full_machine=full))
    return step
