"""Client: a client that loses messages now and then, its notifier, and what it was advised of, as one component.

The judge keeps what was lost since the last advisory by itself; in a system with a tick it counts the time as well.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Fsm, Tell
from statemachines.sequence_windows.loss_notifier import (
    LISTED,
    LOSS_NOTIFIER,
    LOST_MAX,
    Advisory,
    LossNotifierRecord,
    Lost,
    SecondOver,
)
from statemachines_spec.explorer.actor import Actor, Envelope, Passed, Reaction, Watch
from statemachines_spec.explorer.party import Party, begin, firings, pass_time, step_party, timer_words, waits
from statemachines_spec.explorer.property import View
from statemachines_spec.explorer.timing import Timing

LOSSES = (Lost((("a", 1),)), Lost((("b", 2),)))
SECOND = 2
"""Ticks of a second."""
LONG = SECOND + 1
"""Ticks beyond which it makes no difference for how long."""


class ClientLocal(msgspec.Struct, frozen=True, gc=False):
    """`lost` in all, `told` in all; what `waits`: of each subject since the last advisory, the first subject first;
    `quiet`: a second has passed since the last advisory; `hasty`: one came sooner; `late`: a second passed, and what
    was lost in it was not told; `wrong`: an advisory does not say what waited.  Ticks since the last advisory,
    `advised`, and since the first loss that `waits`, `owed` (-1: nothing does); `slow`: a loss was not advised at once
    though it should have been."""

    party: Party
    lost: int = 0
    told: int = 0
    waits: tuple[tuple[str, int], ...] = ()
    quiet: bool = True
    hasty: bool = False
    late: bool = False
    wrong: bool = False
    advised: int = LONG
    owed: int = -1
    slow: bool = False


class Client(Actor):
    """It loses no more than `most`, all together, by these `losses`."""

    def __init__(self, most: int, losses: tuple[Lost, ...] = LOSSES, timing: Timing | None = None) -> None:
        super().__init__("client", timing=timing, fsm=LOSS_NOTIFIER)
        self.most = most
        self.losses = losses

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (LOSS_NOTIFIER,)

    def initial(self) -> ClientLocal:
        return ClientLocal(begin(LOSS_NOTIFIER, LossNotifierRecord("c"), timing=self.timing))

    def inputs(self, local: ClientLocal) -> tuple[Any, ...]:
        lost = tuple(one for one in self.losses if local.lost + _sum(one.losses) <= self.most)
        return (*firings(LOSS_NOTIFIER, local.party, self.silent, self.timing), *lost)

    def react(self, local: ClientLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Passed):
            reaction = pass_time(self.timing, local, event.ticks, standing=False)
            return None if reaction is None else Reaction(_older(reaction.local, event.ticks))
        if waits(self.timing, LOSS_NOTIFIER, local.party, event):
            return None
        party, effects = step_party(LOSS_NOTIFIER, local.party, event, self.name, watch, timing=self.timing)
        told = [one.event for one in effects if isinstance(one, Tell) and isinstance(one.event, Advisory)]
        waiting = _with(local.waits, event.losses if isinstance(event, Lost) else ())
        return Reaction(self._judged(replace(local, party=party), event, waiting, told))

    def _judged(
        self, local: ClientLocal, event: Any, waiting: tuple[tuple[str, int], ...], told: list[Advisory]
    ) -> ClientLocal:
        """What the judge has after this event, and these advisories."""
        lost = local.lost + (_sum(event.losses) if isinstance(event, Lost) else 0)
        over = isinstance(event, SecondOver)
        quiet = local.quiet or over
        owed = max(0, local.owed) if waiting else -1
        long_ago = local.advised > SECOND
        return replace(
            local,
            lost=lost,
            told=local.told + sum(one.lost for one in told),
            waits=() if told else waiting,
            quiet=quiet and not told,
            hasty=local.hasty or len(told) > 1 or (bool(told) and not self._is_time(local, quiet)),
            late=local.late or (over and local.lost > local.told and not told),
            wrong=local.wrong or any(not _says(one, waiting, lost - local.told) for one in told),
            advised=0 if told else local.advised,
            owed=-1 if told else owed,
            slow=local.slow or (isinstance(event, Lost) and long_ago and not told),
        )

    def _is_time(self, local: ClientLocal, quiet: bool) -> bool:
        """Whether an advisory may come."""
        return quiet if self.timing is None else local.advised >= SECOND

    def describe(self, local: ClientLocal) -> str:
        timers = f"; timers {', '.join(timer_words(local.party))}" if local.party.timers else ""
        return f"{local.party.record.status.value}: {local.lost} lost, {local.told} told{timers}"

    def bounds(self) -> dict[str, str]:
        return {"losses": str(self.most)}

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_hasty_or_wrong(self) -> View:
        """An advisory came too soon, or says what was not lost, or something that waits is not what was lost."""

        def read(local: ClientLocal) -> int:
            return int(local.hasty or local.lost - local.told != local.party.record.lost)

        return View(self.name, 2, read)

    def waits_without_end(self) -> View:
        """Something was not told in time, or waits, and no second runs."""

        def read(local: ClientLocal) -> int:
            return int(local.late or local.owed > SECOND or (local.lost > local.told and not local.party.timers))

        return View(self.name, 2, read)

    def is_slow(self) -> View:
        """Nothing was advised for more than a second, and a loss was not advised at once."""
        return View(self.name, 2, lambda local: int(local.slow))

    def says_something_else(self) -> View:
        """An advisory did not say what was lost."""
        return View(self.name, 2, lambda local: int(local.wrong))

    def has_told(self) -> View:
        """All that may be lost was lost, and told."""
        return View(self.name, 2, lambda local: int(local.told == self.most))


def _sum(losses: tuple[tuple[str, int], ...]) -> int:
    return sum(count for _, count in losses)


def _with(waiting: tuple[tuple[str, int], ...], losses: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """What waits, and these besides."""
    counts = dict(waiting)
    for subject, count in losses:
        counts[subject] = counts.get(subject, 0) + count
    return tuple(counts.items())


def _says(told: Advisory, waiting: tuple[tuple[str, int], ...], owed: int) -> bool:
    """Whether an advisory says what waits, as far as it has room for it, and something at all."""
    listed = tuple((subject, min(count, LOST_MAX)) for subject, count in waiting[:LISTED])
    return owed > 0 and told == Advisory(min(owed, LOST_MAX), len(waiting), listed)


def _older(local: ClientLocal, ticks: int) -> ClientLocal:
    owed = local.owed if local.owed < 0 else min(LONG, local.owed + ticks)
    return replace(local, advised=min(LONG, local.advised + ticks), owed=owed)
