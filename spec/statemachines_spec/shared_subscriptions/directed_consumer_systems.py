"""Directed consumer systems: small closed systems of a consumer's machines: a session by the clock, whose turns pass
to and fro, a borrower that pings more than once, a private subscription without a filter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from statemachines.shared_subscriptions.stream_store import ListStreams
from statemachines_spec.contract import MACHINE
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.property import Stepwise
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions import borrower_contract, private_systems, session_contract, stray_messages
from statemachines_spec.shared_subscriptions.borrower_contract import LeaderAlphabet
from statemachines_spec.shared_subscriptions.session_contract import SessionCast

CASTS: Final = {
    "timed turns": SessionCast(
        owners=("x", "y"),
        grants=((1,), (2,)),
        messages=0,
        buffer=1,
        finish=False,
        fail=False,
        idle=("dismisses", "finishes", "counts", "hands over", "gives up"),
        sooner=True,
    ),
    "timed leaving": SessionCast(
        streams=("a", "b"), messages=1, buffer=1, fetches=2, come=(), fail=False, idle=("dismisses", "gives up"),
        sooner=True, kept=("b",),
    ),
    "timed replacing": SessionCast(
        grants=((1, 2),), messages=1, buffer=1, fetches=3, come=(), finish=False, idle=("dismisses", "finishes"),
        sooner=True,
    ),
    "timed hand-over": SessionCast(
        messages=2, buffer=1, at_delivery=True, fetches=3, come=(), finish=False, fail=False,
        idle=("dismisses", "finishes", "counts", "gives up"),
    ),
}  # fmt: skip
ABOUT: Final = {
    "timed turns": "a session of two owners, one of whom comes and goes, by the clock",
    "timed leaving": "a session of two streams, one of which is to be finished, by the clock",
    "timed replacing": "a session whose grants follow each other, and are acknowledged late, by the clock",
    "timed hand-over": "a session whose messages are acknowledged when they are handed over, by the clock",
    "reports again": "a borrower that reports in more than one ping, and is told the same again",
    "known alone": "a private subscription without a filter, which has nothing to ask",
}


def session(name: str) -> System:
    """A session, and everybody else."""
    made = session_contract.build_system(name, ABOUT[name], CASTS[name], timed=True)
    return replace(made, properties=(*made.properties, *stray_messages.of_session(MACHINE)))


def reports() -> System:
    """One stream under one grant."""
    alphabet = LeaderAlphabet(((2, 1),), ("0.0/a",), progress=(0, 1), pings=3, idle=("follows", "leaves once"))
    return borrower_contract.build_system("reports again", ABOUT["reports again"], alphabet)


def build_reader() -> System:
    """It reads what its application knows."""
    made = private_systems.system("alone-known", "small", "settled", ())
    asks = Stepwise("S12 asks", "who has no filter asks for no streams", _asks_nothing)
    made = replace(made, name="known alone", about=ABOUT["known alone"], origin=None)
    return replace(made, properties=(*made.properties, asks))


def _asks_nothing(actor: str, before: Any, event: Any, after: Any) -> bool:
    return not isinstance(event, ListStreams)


BUILDS: Final[dict[str, Callable[[], System]]] = {
    **{name: partial(session, name) for name in CASTS},
    "reports again": reports,
    "known alone": build_reader,
}
DIRECTED_SYSTEMS: Final = tuple(DirectedSystem(name, ABOUT[name], build) for name, build in BUILDS.items())
