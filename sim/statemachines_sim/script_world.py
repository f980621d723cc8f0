"""ScriptWorld: a simulated run that takes its decisions from a script: real hosts and their real timers, pure services,
and a network that asks the conductor about every message.

There is no chance in it and no queue of a simulation: time goes from deadline to deadline and from step to step.
Services answer at once what the script does not know; a request that it knows travels as a message, and so do its
answers.  Clocks are true.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from statemachines.kernel import (
    Answer,
    Ask,
    Event,
    Host,
    HostLoop,
    Message,
    Node,
    Outgoing,
    Request,
    Send,
    Step,
    incarnation,
    node_of,
)
from statemachines.kernel.loop import Feed
from statemachines_sim.recorder import Recorder
from statemachines_spec.script.conductor import Conductor
from statemachines_spec.script.script import Script
from statemachines_spec.script.stage import CannotFollow, PartyStage
from statemachines_spec.script.words import MessageName


class ScriptProcess(ABC):
    """One life of a node; it is the port of its host.  What comes while it stands still waits."""

    clock = None

    def __init__(self, world: ScriptWorld, node: str, number: int) -> None:
        self.world = world
        self.node = node
        self.life = incarnation(node, number)
        self.alive = True
        self.standing = False
        self.msg = world.next_number() << 40
        self._waiting: deque[Callable[[], None]] = deque()
        self.host: Any = self.make_host()
        self.loop = HostLoop(self.host, self, lambda: world.now_ns)

    # -- what a protocol says -------------------------------------------------------------------------------------

    @abstractmethod
    def make_host(self) -> Host:
        """The host, with `self.world.observe` as the observer of its nodes."""

    def start(self) -> None:
        """Begin."""

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """A message for one of the host's parties."""
        out: list[Outgoing] = self.host.feed(to, message, now_ns)
        return out

    def route_tell(self, party: str, event: Event) -> None:
        """Something for the application."""
        self.world.recorder.tell(self.world.now_ns, self.node, party, self.machine_of(party), event)

    # -- the port -------------------------------------------------------------------------------------------------

    def perform(self, party: str, effect: Send | Ask, feed: Feed) -> None:
        """Messages are the conductor's; requests are the services' or, if the script knows them, the conductor's."""
        if isinstance(effect, Send):
            self.world.send(self, party, effect.to, effect.message)
        else:
            self.world.ask(
                self, party, effect.service, effect.request, lambda answer: self.run(partial(feed, party, answer))
            )

    def machine_of(self, party: str) -> str:
        """The machine that a party is of ("": it is gone)."""
        node = self.host.nodes.get(party)
        return "" if node is None else str(node.fsm.full_name)

    # -- from the world -------------------------------------------------------------------------------------------

    def receive(self, sender: str, to: str, message: Message, msg: int) -> None:
        """A message arrives."""
        recorder = self.world.recorder
        recorder.message("deliver", self.world.now_ns, self.node, to, sender, msg, message)

        def act(now_ns: int) -> list[Outgoing]:
            recorder.msg = msg
            try:
                return self.handle(sender, to, message, now_ns)
            finally:
                recorder.msg = -1

        self.loop.run(act)

    def run(self, act: Callable[[], None]) -> None:
        """Now, or when it does not stand still any more; a dead process does nothing."""
        if not self.alive:
            return
        if self.standing:
            self._waiting.append(act)
        else:
            act()

    def wake(self) -> None:
        """Go on: first what has waited, then what is due."""
        self.standing = False
        while self._waiting and self.alive and not self.standing:
            self._waiting.popleft()()
        if self.alive and not self.standing:
            self.loop.fire()

    def deadline(self) -> int | None:
        """When it has to fire; never, while it stands still."""
        return None if self.standing or not self.alive else self.loop.deadline()


class ScriptWorld(PartyStage, ABC):
    """The stage of its conductor; a protocol's stage says what processes there are and what words of its own mean.

    `services` by name, with their `states`; `broken`: what judges have noted.
    """

    def __init__(self, script: Script, recorder: Recorder, services: dict[str, Any], states: dict[str, Any]) -> None:
        self.script = script
        self.conductor = Conductor(script)
        self.recorder = recorder
        self.services = services
        self.states = states
        self.now_ns = 0
        self.processes: dict[str, ScriptProcess] = {}
        self._soon: deque[Callable[[], None]] = deque()
        self._lives: dict[str, int] = {}
        self._numbers = 0
        self._part = script.part
        self._travelling = {sent.to for step in script.steps for sent in step.sends}

    # -- what a protocol says -------------------------------------------------------------------------------------

    @abstractmethod
    def make_process(self, node: str, number: int) -> ScriptProcess:
        """The process of a node in its life `number`."""

    def is_played(self, node: str) -> bool:
        """Whether requests of this node are the script's business; others are answered at once."""
        return True

    def unheard(self, to: str, message: Message) -> None:
        """A message came to a process that is gone."""

    def observe_request(self, party: str, service: str, request: Request, answers: tuple[Answer, ...]) -> None:
        """A service has carried out a request."""

    def observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every node: the conductor hears of it, the trace gets its row."""
        self.conductor.saw(node_of(node.name), node.fsm.name, event)
        self.recorder.step(node, event, before, step, now_ns)

    # -- the stage ------------------------------------------------------------------------------------------------

    def advance(self, at_ns: int) -> None:
        """From deadline to deadline; at the last moment nothing has happened yet."""
        while (due := self._find_due()) is not None and due[0] < at_ns:
            self.now_ns = max(due[0], self.now_ns)
            self.settle()
        self.now_ns = max(at_ns, self.now_ns)

    def settle(self) -> None:
        """What was handed over, in turn, then what is due."""
        while True:
            due = self._find_due()
            if self._soon:
                self._soon.popleft()()
            elif due is not None and due[0] <= self.now_ns:
                self.processes[due[1]].loop.fire()
            else:
                return

    def start(self, node: str) -> None:
        self.recorder.fault(self.now_ns, node, "join")
        self.launch(node)

    def crash(self, node: str) -> None:
        self.recorder.fault(self.now_ns, node, "crash")
        self.alive(node).alive = False

    def restart(self, node: str) -> None:
        if node in self.processes and self.processes[node].alive:
            raise CannotFollow(f"{node} is running")
        self.recorder.fault(self.now_ns, node, "restart")
        self.launch(node)

    def pause(self, node: str) -> None:
        process = self.alive(node)
        self.recorder.fault(self.now_ns, node, "pause")
        process.standing = True

    def wake(self, node: str) -> None:
        process = self.alive(node)
        self.recorder.fault(self.now_ns, node, "resume")
        process.wake()

    # -- what stages need -----------------------------------------------------------------------------------------

    def launch(self, node: str) -> None:
        """The next life of a node begins."""
        self._lives[node] = self._lives.get(node, 0) + 1
        process = self.processes[node] = self.make_process(node, self._lives[node])
        process.start()

    def alive(self, node: str) -> ScriptProcess:
        """The process of a node; raises `CannotFollow` where none runs."""
        process = self.processes.get(node)
        if process is None or not process.alive:
            raise CannotFollow(f"{node} is not running")
        return process

    def check_nodes(self) -> None:
        """Every invariant of every machine; raises `InvariantViolated`."""
        for _, process in sorted(self.processes.items()):
            if process.alive:
                for _, node in sorted(process.host.nodes.items()):
                    node.check()

    def next_number(self) -> int:
        """Lives are numbered, for their messages."""
        self._numbers += 1
        return self._numbers

    # -- messages and requests ------------------------------------------------------------------------------------

    def send(self, process: ScriptProcess, party: str, to: str, message: Message) -> None:
        """A message of `party`: what becomes of it is the conductor's to say."""
        msg, process.msg = process.msg, process.msg + 1
        self.recorder.message("send", self.now_ns, process.node, party, to, msg, message)
        arrived = 0

        def note(kind: str) -> None:
            self.recorder.message(kind, self.now_ns, process.node, party, to, msg, message)

        def hand_over() -> None:
            nonlocal arrived
            if arrived:
                note("duplicate")
            arrived += 1
            self._soon.append(arrive)

        def arrive() -> None:
            there = self.processes.get(node_of(to))
            if there is None or not there.alive:
                note("drop")
                self.unheard(to, message)
            else:
                there.run(lambda: there.receive(party, to, message, msg))

        words = self._part.words_of(message, process.node, node_of(to))
        self.conductor.send_message(words, hand_over, lambda: note("drop"))

    def ask(
        self, process: ScriptProcess, party: str, service: str, request: Request, reply: Callable[[Answer], None]
    ) -> None:
        """A request of `party`: it travels, or is answered at once, or, where the script leaves it out, never."""
        self.recorder.ask(self.now_ns, process.node, party, request, service)
        node = process.node

        def travelled() -> None:
            for answer in self.apply(party, service, request):
                back: MessageName = self._part.words_of(answer, service, node)
                self.conductor.send_message(back, partial(self._reply, (answer,), reply), lambda: None)

        if self.is_played(node) and service in self._travelling:
            words = self._part.words_of(request, node, service)
            self.conductor.send_message(words, lambda: self._soon.append(travelled), lambda: None)
        elif not self.is_played(node) or self.conductor.answers(node, request):
            self._soon.append(lambda: self._reply(self.apply(party, service, request), reply))

    def apply(self, party: str, service: str, request: Request) -> tuple[Answer, ...]:
        """The service carries it out."""
        answers: tuple[Answer, ...]
        self.states[service], answers = self.services[service].apply(self.states[service], request, self.now_ns)
        self.observe_request(party, service, request, answers)
        return answers

    def _reply(self, answers: tuple[Answer, ...], reply: Callable[[Answer], None]) -> None:
        for answer in answers:
            self._soon.append(partial(reply, answer))

    def _find_due(self) -> tuple[int, str] | None:
        """The first deadline, and whose it is."""
        due = (
            (deadline, node) for node, process in self.processes.items() if (deadline := process.deadline()) is not None
        )
        return min(due, default=None)
