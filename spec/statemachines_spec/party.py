"""Party: a node as the explorer knows it: the record of a shipped machine, and which of its timers are set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from statemachines.kernel import CancelTimer, Effect, Effects, Event, Fsm, SetTimer, TimerFired, name_of
from statemachines_spec.actor import Seen, Watch
from statemachines_spec.symmetry import Names, renamed

Timer = tuple[str, str]
"""(name, key of the child instance)"""


class Party(msgspec.Struct, frozen=True, gc=False):
    """One node; `timers` is sorted."""

    record: Any
    timers: tuple[Timer, ...] = ()

    def renamed(self, names: Names) -> Party:
        """As `symmetry.renamed` needs it: the timers are sorted again."""
        return Party(renamed(self.record, names), tuple(sorted(renamed(self.timers, names))))


def begin(fsm: Fsm[Any], record: Any) -> Party:
    """A node that has just been made: the timers of its first state are set."""
    return Party(record, _timers((), fsm.start(record, 0)))


def firings(fsm: Fsm[Any], party: Party, silent: frozenset[str]) -> Iterator[TimerFired]:
    """The firing of each timer that is set."""
    registry = fsm.timer_registry()
    for name, key in party.timers:
        if name not in silent:
            yield registry[name](key)


def advance(
    fsm: Fsm[Any], party: Party, event: Event, name: str, watch: Watch | None = None
) -> tuple[Party, list[Effect]]:
    """One step of the shipped machine: the node afterwards, and its effects without those on timers."""
    party, effects = stepped(fsm, party, event, name, watch)
    return party, [effect for effect in effects if not isinstance(effect, SetTimer | CancelTimer)]


def stepped(
    fsm: Fsm[Any], party: Party, event: Event, name: str, watch: Watch | None = None
) -> tuple[Party, Effects]:  # fmt: skip
    """One step of the shipped machine: the node afterwards, and all its effects."""
    timers = party.timers
    if isinstance(event, TimerFired):
        fired = (_timer_of(fsm, event), event.key)
        timers = tuple(timer for timer in timers if timer != fired)
    step = fsm.step(party.record, event, 0) if watch is None else _watched(fsm, name, party.record, event, watch)
    timers = () if step.record.status in fsm.final else _timers(timers, step.effects)
    return Party(step.record, timers), step.effects


def _timers(timers: tuple[Timer, ...], effects: Effects) -> tuple[Timer, ...]:
    kept = set(timers)
    for effect in effects:
        if isinstance(effect, SetTimer):
            kept.add((effect.timer, effect.key))
        elif isinstance(effect, CancelTimer):
            kept.discard((effect.timer, effect.key))
    return tuple(sorted(kept))


def _timer_of(fsm: Fsm[Any], event: TimerFired) -> str:
    for name, kind in fsm.timer_registry().items():
        if kind is type(event):
            return name
    raise KeyError(f"{fsm.name} has no timer that fires {name_of(type(event))}")


def _watched(fsm: Fsm[Any], name: str, before: Any, event: Event, watch: Watch) -> Any:
    """The step, written down; one that raises leaves a line without a record after it."""
    status = str(before.status.value)
    try:
        step = fsm.step(before, event, 0)
    except Exception:
        watch.append(Seen(name, fsm.name, "", name_of(type(event)), status, "", -1, "", fsm, event, before))
        raise
    dest = str(step.record.status.value)
    clause = fsm.lines[step.row].clause if step.row >= 0 else ""
    watch.append(
        Seen(name, fsm.name, "", name_of(type(event)), status, dest, step.row, clause, fsm, event, before, step.record)
    )
    for child in step.children:
        clause = cast(Fsm[Any], child.fsm).lines[child.row].clause if child.row >= 0 else ""
        came, went = str(child.source.value), str(child.dest.value)
        watch.append(
            Seen(name, child.machine, child.instance, name_of(type(child.event)), came, went, child.row, clause)
        )
    return step
