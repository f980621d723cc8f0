"""Spec: closed systems of the tickets."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from made_up.machines import DISPENSER, IDLE, TAKER, Begin, DispenserRecord, Journal, JournalState, Next, TakerRecord
from statemachines.kernel import Answer, Event
from statemachines_spec import Always, CheckProtocol, Crash, FsmActor, Network, ServiceActor, System, at_most


class ForgetfulJournal(Journal):
    """It does not look at what it gave out before."""

    def apply(self, state: JournalState, request: Next, now_ns: int) -> tuple[JournalState, tuple[Answer, ...]]:
        return super().apply(replace(state, last={}), request, now_ns)


def calls(record: TakerRecord) -> Iterable[Event]:
    return (Begin(),) if record.status is IDLE else ()


def system(
    name: str = "tickets", size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()
) -> System:
    """A taker that asks once, and a dispenser that may crash: its journal is no part of it."""
    journal = ServiceActor(ForgetfulJournal() if variant == "forgetful" else Journal())
    given = journal.view(lambda state: min(state.next - 1, 2), 3)
    return System(
        name,
        SYSTEMS[name],
        (
            FsmActor("dispenser", DISPENSER, DispenserRecord("dispenser"), faults=(Crash,), lives=2),
            FsmActor("taker", TAKER, TakerRecord("taker", "dispenser", 1), calls=calls),
            journal,
        ),
        Network(2),
        properties=(Always("once", "who asks once gets one number", (given,), lambda number: number < 2),),
        budgets=(at_most("crashes", 1, Crash),),
    )


SYSTEMS = {"tickets": "one number is asked for, perhaps again"}

SPEC = CheckProtocol(
    systems=SYSTEMS,
    build=system,
    variants={"settled": "the journal knows who asked", "forgetful": "it gives a number whenever it is asked"},
)
