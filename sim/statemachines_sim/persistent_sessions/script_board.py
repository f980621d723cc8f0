"""ScriptBoard: what stands between the machines of a script, as the explorer has it: paths of live messages, client and
publisher, and, where no real one is there, the database.

Each takes an event and calls others within the same moment.  The board keeps what state they are in; whoever runs the
machines hands their calls on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from statemachines.kernel import node_of
from statemachines_sim.machine_stage import StageJudge
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.client import PublishTo
from statemachines_spec.persistent_sessions.script import FAULTS, HAPPENINGS
from statemachines_spec.script.script import ScriptStep
from statemachines_spec.script.stage import CannotFollow

SERVES: Final = 250
SERVE_NS: Final = 100_000_000
"""How often, and after what time each, everything happens that may, once a script is over: more than a resume takes."""


class ScriptBoard:
    """`call(envelope)` takes what is for a machine; `stands_in`: components that somebody else stands in for."""

    def __init__(self, system: System, call: Callable[[Envelope], None], stands_in: tuple[str, ...] = ()) -> None:
        self.system = system
        self.actors: dict[str, Actor] = {
            one.name: one for one in system.actors if not isinstance(one, FsmActor) and one.name not in stands_in
        }
        self.locals: dict[str, Any] = {name: one.initial() for name, one in self.actors.items()}
        self._call = call

    def take(self, envelope: Envelope) -> None:
        """A component takes an event, or a machine."""
        actor = self.actors.get(node_of(envelope.to))
        if actor is None:
            self._call(envelope)
            return
        before = self.locals[actor.name]
        reaction = actor.react(before, envelope)
        if reaction is None:
            return
        self.locals[actor.name] = reaction.local
        self._hand_on(actor, before, envelope.event, reaction)

    def saw(self, name: str, before: Any, event: Any, after: Any) -> None:
        """Somebody else took an event: whoever is interested hears of it."""
        actor = next(one for one in self.system.actors if one.name == name)
        self._hand_on(actor, before, event, Reaction(after))

    def carry_out(self, step: ScriptStep) -> None:
        """What a step says happens; raises `CannotFollow` where it cannot."""
        actor, kind = self.actors.get(step.node), HAPPENINGS.get(step.what)
        if actor is None or kind is None:
            raise CannotFollow(f"{step.what} does not happen to {step.node} here")
        try:
            event = msgspec.json.decode(step.fields or b"{}", type=kind)
        except msgspec.MsgspecError as error:
            raise CannotFollow(f"{step.what}: {error}") from error
        if event not in actor.inputs(self.locals[actor.name]):
            raise CannotFollow(f"{step.what}({step.fields}) cannot happen to {step.node} now")
        self.take(Envelope("", actor.name, event))

    def serve(self) -> bool:
        """One thing of each component that must happen sooner or later (no more publishes); whether there was any."""
        some = False
        for name, actor in self.actors.items():
            left = [one for one in actor.inputs(self.locals[name]) if not isinstance(one, (*FAULTS, PublishTo))]
            if left:
                some = True
                self.take(Envelope("", name, left[0]))
        return some

    def _hand_on(self, actor: Actor, before: Any, event: Any, reaction: Reaction) -> None:
        for one in self.system.calls_after(actor, before, event, reaction, reaction.local):
            self._call(one)


class BoardJudge(StageJudge):
    """The properties of a system whose observers stand on a board; `ends()`: what must be met in the end."""

    def __init__(self, system: System, board: ScriptBoard) -> None:
        super().__init__(msgspec.structs.replace(system, actors=tuple(
            one for one in system.actors if isinstance(one, FsmActor)
        )))  # fmt: skip
        self._whole = system
        self._board = board

    def step(self, name: str, before: Any, event: Any, after: Any) -> None:
        super().step(name, before, event, after)
        self._board.saw(name, before, event, after)

    def check(self, *, quiet: bool) -> None:
        for name, local in self._board.locals.items():
            self.look(name, local)
        super().check(quiet=quiet)

    def ends(self) -> None:
        """Nothing more happens: no obligation is open."""
        for one in self._whole.obligations:
            values = [self.read(view) for view in one.views]
            if one.open(*values):
                self.note(one.name, f"{one.text}: it has not, and nothing more happens")
