"""Window turns: a window by itself, that is asked at every instant whether it turns."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Fsm
from statemachines.sequence_windows.rotation import ROTATION, RotationRecord, Tick, Window
from statemachines_spec.explorer.actor import Actor, At, Envelope, Reaction, Watch
from statemachines_spec.explorer.clock import Clock
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Sometimes, View
from statemachines_spec.explorer.system import System
from statemachines_spec.sequence_windows.machine_step import step

WINDOW = Window(100)
INSTANTS = (0, WINDOW.time_ns, WINDOW.time_ns + 1, 2 * WINDOW.time_ns + 1, 2 * WINDOW.time_ns + 2)
"""Each just before a window turns, or just when it does."""


class Look(Event, frozen=True, gc=False):
    """The host asks; so many bytes are kept."""

    kept: int


class TurnHostLocal(msgspec.Struct, frozen=True, gc=False):
    """`turned_ns`: when the window turned last; `turns`: how often; `early`: it turned when it should not; `late`: it
    did not when it should."""

    rotation: RotationRecord
    now_ns: int = 0
    turned_ns: int = 0
    turns: int = 0
    early: bool = False
    late: bool = False


class WindowHost(Actor):
    """A host with a window of `WINDOW`."""

    keeps_time = True

    def __init__(self) -> None:
        super().__init__("host")

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (ROTATION,)

    def initial(self) -> TurnHostLocal:
        return TurnHostLocal(RotationRecord(WINDOW, 0))

    def inputs(self, local: TurnHostLocal) -> tuple[Any, ...]:
        return (Look(WINDOW.size), Look(WINDOW.size + 1))

    def react(self, local: TurnHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, At):
            return Reaction(replace(local, now_ns=event.now_ns))
        rotation, told = step(ROTATION, local.rotation, Tick(local.now_ns, event.kept), self.name, watch)
        turns = len(told)
        passed = local.now_ns >= local.turned_ns + WINDOW.time_ns + 1
        due = int(passed and event.kept > WINDOW.size)
        return Reaction(
            TurnHostLocal(
                rotation,
                local.now_ns,
                local.now_ns if turns else local.turned_ns,
                local.turns + turns,
                local.early or turns > due,
                local.late or turns < due,
            )
        )

    def describe(self, local: TurnHostLocal) -> str:
        return f"at {local.now_ns} ns; has turned {local.turns} times"

    def bounds(self) -> dict[str, str]:
        return {"window": f"{WINDOW.size} bytes, {WINDOW.time_ns} ns"}

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_wrong(self) -> View:
        """Whether TURN is broken."""
        return View(self.name, 2, lambda local: int(local.early or local.late))

    def has_turned(self, times: int) -> View:
        """Whether the window has turned so often."""
        return View(self.name, 2, lambda local: int(local.turns >= times))


def turning(about: str) -> System:
    """A window and a clock that does not step."""
    host = WindowHost()
    text = "a window turns when its time has passed and too much is kept, and at no other time"
    return System(
        "turning",
        about,
        (host, Clock(*INSTANTS)),
        Network(1, lossy=False, duplicating=False),
        properties=(
            Always("TURN", text, (host.is_wrong(),), lambda wrong: not wrong),
            Sometimes("it turns twice", "", (host.has_turned(2),), bool),
        ),
    )
