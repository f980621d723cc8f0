"""Adopted actors: several instances of adopted machines as one closed system, explored by tables.

Each call of each value is taken once an instance, and then looked up: a product costs no more steps than its instances.
What relates them is a property over their views.  Search each machine by itself first: there every step is taken twice,
under two hash seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from statemachines.adoption import AdoptedMachine
from statemachines.adoption.model_step import ModelAction, name_action
from statemachines.adoption.model_value import ModelValue
from statemachines.kernel import Call
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, SeenStep, Watch
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, View
from statemachines_spec.explorer.system import System


class AdoptedLocal(msgspec.Struct, frozen=True, gc=False):
    """The value of one instance, by its code."""

    code: bytes


class AdoptedCall(Call, frozen=True, gc=False):
    """A call of one instance, as it is printed."""

    call: str


class CallbackRaised(Exception):
    """A callback raised what `--raises` does not name."""


class AdoptedActor(Actor):
    """One instance of an adopted machine, called with what the machine was adopted with."""

    def __init__(self, name: str, adopted: AdoptedMachine) -> None:
        super().__init__(name)
        self.adopted = adopted
        initial = adopted.stepper.initial
        adopted.values[initial.code] = initial

    def initial(self) -> AdoptedLocal:
        return AdoptedLocal(self.adopted.stepper.initial.code)

    def value_of(self, local: AdoptedLocal) -> ModelValue:
        """The value that a local state stands for."""
        return self.adopted.values[local.code]

    def inputs(self, local: AdoptedLocal) -> tuple[AdoptedCall, ...]:
        return tuple(AdoptedCall(name) for name in self._actions_in(local))

    def react(self, local: AdoptedLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        """The step on a fresh model; None: no row was taken, and nothing has changed."""
        stepper, event = self.adopted.stepper, envelope.event
        action, value = self._actions_in(local)[event.call], self.value_of(local)
        with stepper.install():
            outcome = stepper.step(value, action)
        if outcome.kind == "raised" and outcome.error_type not in self.adopted.request.raises:
            raise CallbackRaised(outcome.error)
        if not outcome.rows and outcome.value.code == value.code:
            return None
        self.adopted.values.setdefault(outcome.value.code, outcome.value)
        if watch is not None:
            name = type(stepper.first.models[0]).__name__.lower()
            for row, trigger, _, source, dest in outcome.rows:
                label = stepper.rows[row].label if row >= 0 else ""
                watch.append(SeenStep(self.name, name, "", trigger, source, dest or source, row, label))
        return Reaction(AdoptedLocal(outcome.value.code))

    def within(self, local: AdoptedLocal) -> bool:
        """As `within` of `adopt` says."""
        return all(one.find_broken(self.value_of(local).origin) is None for one in self.adopted.within)

    def describe(self, local: AdoptedLocal) -> str:
        return ", ".join(f"{name}={code.decode('utf-8', 'replace')}" for name, code in self.value_of(local).parts)

    def bounds(self) -> dict[str, str]:
        adopted = self.adopted
        calls = ", ".join(name_action(adopted.stepper, one) for one in adopted.request.calls)
        within = "; ".join(one.name for one in adopted.within) or "everything"
        return {"machine": adopted.place, "calls": calls, "within": within}

    def _actions_in(self, local: AdoptedLocal) -> dict[str, ModelAction]:
        stepper = self.adopted.stepper
        some = stepper.actions_in(self.value_of(local), self.adopted.request.calls)
        return {name_action(stepper, one): one for one in some}


def view_instance(name: str, adopted: AdoptedMachine, size: int, of: Callable[[Any], int]) -> View:
    """What a property reads of the instance `name`: `of(model)` in range(`size`)."""
    return View(name, size, lambda local: of(adopted.values[local.code].origin.models[0]))


def build_adopted_system(name: str, instances: Mapping[str, AdoptedMachine], *properties: Always) -> System:
    """A closed system of instances that run side by side; each promise of each machine is a property of it."""
    actors = [AdoptedActor(one, adopted) for one, adopted in instances.items()]
    promises = [
        Always(f"{actor.name}: {promise.name}", promise.name, (_promise_view(actor, number),), bool)
        for actor in actors
        for number, promise in enumerate(actor.adopted.properties)
    ]
    network = Network(in_flight=1, lossy=False, duplicating=False)
    about = f"{len(actors)} adopted instances side by side"
    return System(name, about, tuple(actors), network, (*promises, *properties))


def _promise_view(actor: AdoptedActor, number: int) -> View:
    promise = actor.adopted.properties[number]
    return View(actor.name, 2, lambda local: int(promise.find_broken(actor.value_of(local).origin) is None))
