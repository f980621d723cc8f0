"""Pace: how often a leader does what it does again and again, and how long it waits: counted in ticks by somebody who
looks on.

A *beat* is something that comes at least and at most so many ticks after something else: a batch after the batch
before, a look at the claim after one that failed, the grant after the grant that nobody answered.  What is set for
twice the time comes too late, what is set for half of it too early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines_spec.explorer.actor import Envelope, Observer, Passed, Reaction, Watch
from statemachines_spec.explorer.property import Always, Property, Sometimes, View

NOTHING, BEGIN, HIT, BEAT, AGAIN, END = range(6)
"""What a transition is for a beat: nothing; it is waited for from now on (anew, if it was); it comes; it comes, and is
waited for from now on; the same, if it was waited for; it is not waited for any more."""


ENDLESS = -1
"""In place of the most: it may come as late as it likes."""


class PaceBeat(msgspec.Struct, frozen=True):
    """`name` of the property and its `text`; from `least` to `most` ticks (or `ENDLESS`); `of(actor, before, event,
    after)`: what a transition of a component is for it."""

    name: str
    text: str
    least: int
    most: int
    of: Callable[[str, Any, Any, Any], int]

    @property
    def counted_ticks(self) -> int:
        """Ticks beyond this make no difference."""
        return self.least if self.most == ENDLESS else self.most + 1


class Signs(Event, frozen=True, gc=False):
    """What a transition is for each beat."""

    each: tuple[int, ...]


class Paces(msgspec.Struct, frozen=True, gc=False):
    """`ticks` that each beat has been waited for (-1: it is not); `wrong`: the number of the one that came too early or
    too late (-1: none)."""

    ticks: tuple[int, ...]
    wrong: int = -1


class Pace(Observer):
    """Counts for all beats of a system."""

    keeps_time = True

    def __init__(self, beats: Sequence[PaceBeat], name: str = "pace") -> None:
        super().__init__(name)
        self.beats = tuple(beats)

    def initial(self) -> Paces:
        return Paces((-1,) * len(self.beats))

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        each = tuple(beat.of(actor, before, event, after) for beat in self.beats)
        return Signs(each) if any(each) else None

    def react(self, local: Paces, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        for number, beat in enumerate(self.beats):
            passed = event.ticks if isinstance(event, Passed) else 0
            sign = NOTHING if isinstance(event, Passed) else event.each[number]
            local = _count_beat(local, number, beat, sign, passed)
        return Reaction(local)

    def describe(self, local: Paces) -> str:
        counted = (f"{one.name} for {ticks}" for one, ticks in zip(self.beats, local.ticks, strict=True) if ticks >= 0)
        return ", ".join(counted) or "nothing is waited for"

    def properties(self) -> tuple[Property, ...]:
        """Every beat comes in time; and sometimes its time comes."""
        made: list[Property] = []
        for number, beat in enumerate(self.beats):
            span = str(beat.least) if beat.least == beat.most else f"{beat.least} to {beat.most}"
            span = f"at least {beat.least}" if beat.most == ENDLESS else span
            text = f"{beat.text}: {span} ticks"
            made.append(Always(beat.name, text, (View(self.name, 2, _is_wrong(number)),), lambda wrong: not wrong))
            few = max(1, beat.least)
            came = View(self.name, 2, _has_waited(number, few))
            if beat.most:  # what comes within the same tick is never seen to be waited for
                made.append(Sometimes(f"{beat.name} waited", f"{few} ticks have been waited", (came,), bool))
        return tuple(made)


def _count_beat(local: Paces, number: int, beat: PaceBeat, sign: int, passed: int) -> Paces:
    ticks = local.ticks[number]
    waited = ticks if ticks < 0 else min(ticks + passed, beat.counted_ticks)
    comes = sign in (HIT, BEAT, AGAIN) and waited >= 0
    wrong = waited > beat.most != ENDLESS or (comes and waited < beat.least)
    after = {NOTHING: waited, BEGIN: 0, BEAT: 0, AGAIN: min(waited, 0)}.get(sign, -1)
    counted = (*local.ticks[:number], after, *local.ticks[number + 1 :])
    return replace(local, ticks=counted, wrong=number if wrong and local.wrong < 0 else local.wrong)


def _is_wrong(number: int) -> Callable[[Paces], int]:
    return lambda local: int(local.wrong == number)


def _has_waited(number: int, few: int) -> Callable[[Paces], int]:
    return lambda local: int(local.ticks[number] >= few)
