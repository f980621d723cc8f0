"""What a standby owes its session, its Agent and its client: SS-293 to SS-295."""

from __future__ import annotations

from typing import Final

from statemachines.kernel import Stop, Tell
from statemachines.shared_subscriptions.borrower import Destroyed, OnDisconnect, OnUnsubscribe, Start
from statemachines.shared_subscriptions.standby import STANDBY, Resume, Resumed, StandbyRecord, Suspended
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.table_contract import Owed, TableContract

ID: Final = "consumer-1~1/2"
SUBSCRIPTION: Final = "consumer-1~1/1"
STREAM: Final = "0.0/a"
EPOCH: Final = 3


class StandbyCounterpart(TableContract):
    """a session that can read again, or not, and a client"""

    owes, ends = "S19", "S1 ends"


# fmt: off
ROWS: Final = (
    Owed("suspends", "SS-293", "the application is told, and nobody else",
         Start, "new", lambda known, event: (Tell(Suspended(SUBSCRIPTION, STREAM)),), "begun"),
    Owed("resumes", "SS-294", "the next borrower begins from the epoch of the last",
         Resume, "begun",
         lambda known, event: (Tell(Resumed(SUBSCRIPTION, STREAM)), Tell(Destroyed(ID, True, EPOCH)), Stop())),
    Owed("goes", "SS-295", "a client that leaves ends it",
         OnUnsubscribe | OnDisconnect, "begun", lambda known, event: (Tell(Destroyed(ID, False, EPOCH)), Stop())),
)
# fmt: on

NAME: Final = "standby-told"
ABOUT: Final = {NAME: "what stands by for a borrower until the session can read, or the client leaves"}


def build(name: str) -> System:
    """One that stands by, its session, and its client."""
    machine = Machine(STANDBY, StandbyRecord(ID, SUBSCRIPTION, STREAM, EPOCH))
    counterpart = StandbyCounterpart(ROWS, (), (Start(), Resume(), OnUnsubscribe(), OnDisconnect()), mute="new")
    return contract(name, ABOUT[name], machine, counterpart)
