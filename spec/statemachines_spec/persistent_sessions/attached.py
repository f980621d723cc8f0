"""Attached: a machine whose messages of some kinds go to what stands beside it within the same transition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.fsm_actor import FsmActor, FsmLocal


class Carried(Event, frozen=True, gc=False):
    """`message` is on its way to `to`."""

    to: str
    message: Any


class AttachedActor(FsmActor):
    """`beside`: message -> the component that takes it at once; all others travel.  A component that is not the
    receiver carries it (`Carried`)."""

    def __init__(self, *given: Any, beside: Mapping[type[Any], str], **named: Any) -> None:
        super().__init__(*given, **named)
        self.beside = dict(beside)

    def react(self, local: FsmLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        reaction = super().react(local, envelope, watch)
        if reaction is None or not reaction.sends:
            return reaction
        near = tuple(self.near(one) for one in reaction.sends if type(one.event) in self.beside)
        far = tuple(one for one in reaction.sends if type(one.event) not in self.beside)
        return replace(reaction, sends=far, calls=(*reaction.calls, *near))

    def near(self, one: Envelope) -> Envelope:
        """The message as what stands beside takes it."""
        place = self.beside[type(one.event)]
        event = one.event if place == one.to else Carried(one.to, one.event)
        return Envelope(one.sender, place, event)
