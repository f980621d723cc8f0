"""Client: a client that loses messages now and then, its notifier, and what it was advised of, as one component."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Tell
from statemachines.sequence_windows.loss_notifier import (
    LOSS_NOTIFIER,
    Advisory,
    LossNotifierRecord,
    Lost,
    SecondOver,
)
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import Party, begin, firings, stepped, timer_words
from statemachines_spec.explorer.property import View

LOSSES = (Lost((("a", 1),)), Lost((("b", 2),)))


class ClientLocal(msgspec.Struct, frozen=True, gc=False):
    """`lost` in all, `told` in all; `quiet`: a second has passed since the last advisory; `hasty`: one came sooner;
    `late`: a second passed, and what was lost in it was not told."""

    party: Party
    lost: int = 0
    told: int = 0
    quiet: bool = True
    hasty: bool = False
    late: bool = False


class Client(Actor):
    """It loses no more than `losses`, all together."""

    def __init__(self, losses: int) -> None:
        super().__init__("client")
        self.losses = losses

    def initial(self) -> ClientLocal:
        return ClientLocal(begin(LOSS_NOTIFIER, LossNotifierRecord("c")))

    def inputs(self, local: ClientLocal) -> tuple[Any, ...]:
        lost = tuple(one for one in LOSSES if local.lost + one.losses[0][1] <= self.losses)
        return (*firings(LOSS_NOTIFIER, local.party, self.silent), *lost)

    def react(self, local: ClientLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        party, effects = stepped(LOSS_NOTIFIER, local.party, event, self.name, watch)
        told = [one.event for one in effects if isinstance(one, Tell) and isinstance(one.event, Advisory)]
        lost = event.losses[0][1] if isinstance(event, Lost) else 0
        quiet = local.quiet or isinstance(event, SecondOver)
        return Reaction(
            replace(
                local,
                party=party,
                lost=local.lost + lost,
                told=local.told + sum(one.lost for one in told),
                quiet=quiet and not told,
                hasty=local.hasty or len(told) > 1 or (bool(told) and not quiet),
                late=local.late or (isinstance(event, SecondOver) and local.lost > local.told and not told),
            )
        )

    def describe(self, local: ClientLocal) -> str:
        timers = f"; timers {', '.join(timer_words(local.party))}" if local.party.timers else ""
        return f"{local.party.record.status.value}: {local.lost} lost, {local.told} told{timers}"

    def bounds(self) -> dict[str, str]:
        return {"losses": str(self.losses)}

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_hasty_or_wrong(self) -> View:
        """An advisory came too soon, or says what was not lost, or something that waits is not what was lost."""

        def read(local: ClientLocal) -> int:
            return int(local.hasty or local.lost - local.told != local.party.record.lost)

        return View(self.name, 2, read)

    def waits_without_end(self) -> View:
        """Something was not told in time, or waits, and no second runs."""

        def read(local: ClientLocal) -> int:
            return int(local.late or (local.lost > local.told and not local.party.timers))

        return View(self.name, 2, read)

    def has_told(self) -> View:
        """All that may be lost was lost, and told."""
        return View(self.name, 2, lambda local: int(local.told == self.losses))
