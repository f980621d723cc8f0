"""PacketRun: packets of a client that are there together, and a connection that takes them one behind the other."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Event, name_of
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.fsm_actor import FsmActor, FsmLocal

CALLS_BETWEEN: Final = 2
"""What a packet tells reaches the session, and its answer at once the connection, before the next packet is taken."""


class PacketRun(Event, frozen=True, gc=False):
    """These `packets` come together.  `kinds`: their types, since two may have the same fields; `wait`: calls that come
    first."""

    kinds: tuple[str, ...]
    packets: tuple[Any, ...]
    wait: int = 0


def run_of(*packets: Any) -> PacketRun:
    """These packets together."""
    return PacketRun(tuple(name_of(type(one)) for one in packets), packets)


class RunActor(FsmActor):
    """A connection whose client may send a `PacketRun`: nothing else happens from its first packet to its last."""

    def react(self, local: FsmLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        run = envelope.event
        if not isinstance(run, PacketRun):
            return super().react(local, envelope, watch)
        if run.wait:
            return Reaction(local, (), (Envelope("", self.name, replace(run, wait=run.wait - 1)),))
        rest = PacketRun(run.kinds[1:], run.packets[1:], CALLS_BETWEEN)
        events = (run.packets[0], *((rest,) if rest.packets else ()))
        return Reaction(local, (), tuple(Envelope("", self.name, one) for one in events))
