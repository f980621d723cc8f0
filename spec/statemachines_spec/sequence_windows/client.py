"""Client: a client that loses messages now and then, its notifier, and what it was advised of, as one component.

In a system with a tick its judge counts the time; without one a second that is over is longer ago than any.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Fsm, Tell
from statemachines.sequence_windows.loss_notifier import (
    LOSS_NOTIFIER,
    Advisory,
    LossNotifierRecord,
    Lost,
    SecondOver,
)
from statemachines.sequence_windows.properties.advised_losses import AdvisedLosses
from statemachines.sequence_windows.properties.names import CONTENT
from statemachines_spec.explorer.actor import Actor, Envelope, Passed, Reaction, Timing, Watch
from statemachines_spec.explorer.party import Party, begin, list_firings, pass_time, step_party, timer_words, waits
from statemachines_spec.explorer.property import View

LOSSES = (Lost((("a", 1),)), Lost((("b", 2),)))
SECOND = 2
"""Ticks of a second."""
LONG = SECOND + 1
"""Ticks beyond which it makes no difference for how long."""
PROMPT = "PROMPT"


class AdvisedClientLocal(msgspec.Struct, frozen=True, gc=False):
    """`lost` in all; `advised`: what waits for an advisory, in ticks; which properties are `broken`."""

    party: Party
    lost: int = 0
    advised: AdvisedLosses = AdvisedLosses()
    broken: tuple[str, ...] = ()


class AdvisedClient(Actor):
    """It loses no more than `most`, all together, by these `losses`."""

    def __init__(self, most: int, losses: tuple[Lost, ...] = LOSSES, timing: Timing | None = None) -> None:
        super().__init__("client", timing=timing, fsm=LOSS_NOTIFIER)
        self.most = most
        self.losses = losses

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (LOSS_NOTIFIER,)

    def initial(self) -> AdvisedClientLocal:
        return AdvisedClientLocal(begin(LOSS_NOTIFIER, LossNotifierRecord("c"), timing=self.timing))

    def inputs(self, local: AdvisedClientLocal) -> tuple[Any, ...]:
        lost = tuple(one for one in self.losses if local.lost + _sum(one.losses) <= self.most)
        return (*list_firings(LOSS_NOTIFIER, local.party, self.silent, self.timing), *lost)

    def react(self, local: AdvisedClientLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Passed):
            reaction = pass_time(self.timing, local, event.ticks, standing=False)
            return None if reaction is None else Reaction(_age(reaction.local, event.ticks))
        if waits(self.timing, LOSS_NOTIFIER, local.party, event):
            return None
        party, effects = step_party(LOSS_NOTIFIER, local.party, event, self.name, watch, timing=self.timing)
        told = [one.event for one in effects if isinstance(one, Tell) and isinstance(one.event, Advisory)]
        return Reaction(self._judge(replace(local, party=party), event, told))

    def _judge(self, local: AdvisedClientLocal, event: Any, told: list[Advisory]) -> AdvisedClientLocal:
        """What the judge has after this event, and these advisories."""
        advised, found = local.advised, set()
        if isinstance(event, Lost):
            local = replace(local, lost=local.lost + _sum(event.losses))
            found |= {PROMPT} if advised.advised_at is None and not told else set()
            advised = advised.lose(event.losses, 0).settle_newest()
        elif isinstance(event, SecondOver) and self.timing is None:
            advised = advised.pass_time(LONG, LONG)
        for one in told:
            advised, broken = advised.observe(one, 0, 0, SECOND, CONTENT)
            found |= {each.name for each in broken}
        late = advised.judge_wait(0, SECOND, alarm=bool(local.party.timers))
        found |= {each.name for each in (*late, *advised.judge_count(local.party.record.lost))}
        return replace(local, advised=advised, broken=tuple(sorted({*local.broken, *found})))

    def describe(self, local: AdvisedClientLocal) -> str:
        timers = f"; timers {', '.join(timer_words(local.party))}" if local.party.timers else ""
        return f"{local.party.record.status.value}: {local.lost} lost, {local.lost - local.advised.owed} told{timers}"

    def bounds(self) -> dict[str, str]:
        return {"losses": str(self.most)}

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_broken(self, name: str) -> View:
        """Whether this property was broken."""
        return View(self.name, 2, lambda local: int(name in local.broken))

    def has_told(self) -> View:
        """All that may be lost was lost, and told."""
        return View(self.name, 2, lambda local: int(local.lost - local.advised.owed == self.most))


def _sum(losses: tuple[tuple[str, int], ...]) -> int:
    return sum(count for _, count in losses)


def _age(local: AdvisedClientLocal, ticks: int) -> AdvisedClientLocal:
    advised = local.advised.pass_time(ticks, LONG)
    late = {one.name for one in advised.judge_wait(0, SECOND)}
    return replace(local, advised=advised, broken=tuple(sorted({*local.broken, *late})))
