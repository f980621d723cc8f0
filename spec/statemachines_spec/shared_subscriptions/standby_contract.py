"""What a standby owes its session, its Agent and its client: SS-293 to SS-295."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from statemachines.kernel import Stop, Tell
from statemachines.shared_subscriptions.borrower import Destroyed, OnDisconnect, OnUnsubscribe, Start
from statemachines.shared_subscriptions.listing import STANDBY, Resume, Resumed, StandbyRecord, Suspended
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System

ID: Final = "consumer-1~1/2"
SUBSCRIPTION: Final = "consumer-1~1/1"
STREAM: Final = "0.0/a"
EPOCH: Final = 3
Said = tuple[Any, ...]


class StandbyFacts(msgspec.Struct, frozen=True, gc=False):
    """It has `begun`, and `ended`."""

    begun: bool = False
    ended: bool = False


class StandbyCounterpart(Counterpart):
    """a session that can read again, or not, and a client"""

    owes, ends = "S19", "S1 ends"

    def __init__(self) -> None:
        super().__init__(RULES)

    def begins(self) -> StandbyFacts:
        return StandbyFacts()

    def says(self, known: StandbyFacts) -> Iterator[Any]:
        if not known.begun:
            yield Start()
        elif not known.ended:
            yield from (Resume(), OnUnsubscribe(), OnDisconnect())

    def learns(self, known: StandbyFacts, event: Any, said: Said) -> StandbyFacts:
        return StandbyFacts(True, Stop() in said)


RULES: Final = (
    Rule("suspends", "SS-293", "the application is told, and nobody else",
         lambda known, event: isinstance(event, Start),
         lambda known, event, said: said == (Tell(Suspended(SUBSCRIPTION, STREAM)),)),
    Rule("resumes", "SS-294", "the next borrower begins from the epoch of the last",
         lambda known, event: isinstance(event, Resume),
         lambda known, event, said: said == (
             Tell(Resumed(SUBSCRIPTION, STREAM)), Tell(Destroyed(ID, True, EPOCH)), Stop())),
    Rule("goes", "SS-295", "a client that leaves ends it",
         lambda known, event: isinstance(event, OnUnsubscribe | OnDisconnect),
         lambda known, event, said: said == (Tell(Destroyed(ID, False, EPOCH)), Stop())),
)  # fmt: skip

NAME: Final = "standby-told"
ABOUT: Final = {NAME: "what stands by for a borrower until the session can read, or the client leaves"}


def build(name: str) -> System:
    """One that stands by, its session, and its client."""
    return contract(
        name, ABOUT[name], Machine(STANDBY, StandbyRecord(ID, SUBSCRIPTION, STREAM, EPOCH)), StandbyCounterpart()
    )
