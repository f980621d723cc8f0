"""A scripted run of persistent sessions in the simulator: writers and owners as real nodes with real timers, and
between them what the explorer has there.

The properties are those of the explored system, read from the real nodes after each step.  When the script is over,
everything arrives and happens that has to, for longer than a resume may take; then no obligation may be open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from statemachines.kernel import Answer, Event, Message, Request, node_of
from statemachines_sim.machine_stage import MachineWorld, ScriptMachineProcess, StageJudge
from statemachines_sim.persistent_sessions.script_board import SERVE_NS, SERVES, BoardJudge, ScriptBoard
from statemachines_sim.replay_result import SimulatedReplay, carry_out, parameters_of
from statemachines_sim.script_world import ScriptProcess
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.service_actor import ServiceActor
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.clients import AttachedActor
from statemachines_spec.persistent_sessions.takeover_systems import HostedOwner, refusal_of
from statemachines_spec.script.origin import system_of
from statemachines_spec.script.script import Script
from statemachines_spec.script.script import ScriptStep as ScriptStep


def simulate(script: Script, variant: str = "", *, data: bool = False) -> SimulatedReplay:
    """Follow the script in the simulator; `variant`: by these rules ("" = its own).  Raises `ConfigurationError` where
    its system cannot be made again."""
    with script.part.rules(script, variant):
        world = SessionWorld(script, system_of(script, variant), data)
        replayed = carry_out(world, world.conductor, world.judge.broken, world.check)
    return SimulatedReplay(replayed, world.recorder.rows, parameters_of(script, replayed, variant, world.machines))


class SessionWorld(MachineWorld):
    """Machines as processes, all else on a board."""

    judge: BoardJudge

    def __init__(self, script: Script, system: System, data: bool = False) -> None:
        self.board = ScriptBoard(system, self._put_off)
        super().__init__(script, system, data)

    def components(self, script: Script, system: System) -> dict[str, FsmActor | ServiceActor]:
        return {one.name: one for one in system.actors if isinstance(one, FsmActor)}

    def make_judge(self, system: System) -> StageJudge:
        return BoardJudge(system, self.board)

    # -- the stage ------------------------------------------------------------------------------------------------

    def do(self, step: ScriptStep) -> None:
        if step.do == "call":
            super().do(step)
        else:
            self.board.carry_out(step)

    def end(self, release: Callable[[], None]) -> None:
        """Whatever has to happen does; then nothing that must be met is open."""
        if self.judge.broken:
            return
        release()
        for _ in range(SERVES):
            self.advance(self.now_ns + SERVE_NS)
            self.settle()
            while self.board.serve():
                self.settle()
        self.check()
        self.judge.check(quiet=True)  # what the script left in flight is lost
        self.judge.ends()

    # -- what happens ---------------------------------------------------------------------------------------------

    def send(self, process: ScriptProcess, party: str, to: str, message: Message) -> None:
        """What goes to somebody beside the sender goes there at once; all else is the conductor's."""
        assert isinstance(process, ScriptMachineProcess)
        actor = process.actor
        if isinstance(actor, AttachedActor) and type(message) in actor.beside:
            self._put_off(actor.near(Envelope(party, to, message)))
        else:
            super().send(process, party, to, message)

    def ask(
        self, process: ScriptProcess, party: str, service: str, request: Request, reply: Callable[[Answer], None]
    ) -> None:
        """The answer is for this life, and no later one."""
        assert isinstance(process, ScriptMachineProcess)
        self.recorder.ask(self.now_ns, process.node, party, request, service)
        asker = party if process.actor.lives == 1 else process.life
        self._put_off(Envelope(asker, service, request))

    def tell(self, component: str, party: str, event: Event) -> None:
        self._put_off(Envelope(party, component, event))

    def unheard(self, to: str, message: Message) -> None:
        """The host of an owner that is gone refuses in its place."""
        if isinstance(self.actors[node_of(to)], HostedOwner) and (refused := refusal_of(message)) is not None:
            asker, answer = refused
            words = self._part.words_of(answer, node_of(to), node_of(asker))
            self.conductor.send_message(words, lambda: self._put_off(Envelope(to, asker, answer)), lambda: None)

    def _put_off(self, envelope: Envelope) -> None:
        """What is called comes in turn, as in the explorer."""
        self._soon.append(partial(self._take, envelope))

    def _take(self, envelope: Envelope) -> None:
        name = node_of(envelope.to)
        if name in self.board.actors:
            self.board.take(envelope)
            return
        process: Any = self.processes.get(name)
        if process is not None and process.alive and envelope.to in (process.node, process.life, process.id):
            process.run(lambda: process.loop.feed(process.id, envelope.event))
