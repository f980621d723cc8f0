"""Conductor: carries a script out on a stage.

The stage runs real parties and asks the conductor about every message they send.  One that the script knows waits until
it is delivered, copied or lost.  One that it does not know is lost, and listed: whatever a real host does beyond the
explored system (another life, a timer that the bounds leave out) has the least effect so.  What the
script expects and nobody sends is listed, too; a step that cannot be carried out ends the run, and says why.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from statemachines.kernel import Event, Request, TimerFired, name_of
from statemachines_spec.script.script import Script, ScriptStep, SentMessage
from statemachines_spec.script.stage import CannotFollow, PartyStage
from statemachines_spec.script.words import MessageName, alike

LISTED_MAX = 1_000
"""Of each sort of deviation, so many are listed."""


class Flight(msgspec.Struct):
    """A message that waits.  `hand_over` lets it arrive (again and again, for copies); `lose` does not."""

    words: MessageName
    sent_in: int
    nth: int
    hand_over: Callable[[], None]
    lose: Callable[[], None]


class FollowedScript(msgspec.Struct, frozen=True):
    """How far a script was followed: `steps` of `of`; `stopped`: why no further ("" = to its end).

    `unknown`: messages that the script does not know, lost, and requests of timers that it leaves out, not answered;
    `missing`: messages that it expects and nobody sent; `early`: what happened in an earlier step than it says.
    """

    steps: int
    of: int
    stopped: str
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    early: tuple[str, ...]


class Conductor:
    """`follow(stage)` once; the stage calls `sent` and `saw`.  `after(step)` is called after every step."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._part = script.part
        self._flights: list[Flight] = []
        self._step: ScriptStep | None = None
        self._when = "before the first step"
        self._done = 0
        self._released = False
        self._expected: list[SentMessage | None] = []
        self._adopted: dict[int, list[SentMessage]] = {}
        self._counted: dict[tuple[int, MessageName], int] = {}
        self._fired: list[tuple[str, str, str]] = []
        self._said: dict[tuple[str, str], int] = {}
        self._strays: set[str] = set()
        self._unknown: list[str] = []
        self._missing: list[str] = []
        self._early: list[str] = []

    # -- what the stage reports ---------------------------------------------------------------------------------

    def send_message(self, words: MessageName, hand_over: Callable[[], None], lose: Callable[[], None]) -> None:
        """Somebody sends a message: it waits, or it is lost."""
        step = self._step
        if self._released:
            hand_over()
        elif step is None:
            _list(self._unknown, f"{self._when}: {words}")
            lose()
        elif (place := self._place(step, words)) is not None:
            sent = self._expected[place]
            assert sent is not None
            self._expected[place] = None
            self._post(step.n, sent, hand_over, lose)
        elif (later := self._later(step, words)) is not None:
            _list(self._early, f"step {step.n}: {words}, which the script has in step {later[0].n}")
            self._adopted.setdefault(later[0].n, []).append(later[1])
            self._post(later[0].n, later[1], hand_over, lose)
        else:
            _list(self._unknown, f"step {step.n}: {words}")
            lose()

    def answers(self, node: str, request: Request) -> bool:
        """Whether a store answers a request of a machine on `node` that the script does not know."""
        if self._released or (self._step is not None and node not in self._strays):
            return True
        _list(self._unknown, f"{self._when if self._step is None else f'step {self._step.n}'}: a request of {node}")
        return False

    def saw(self, node: str, machine: str, event: Event) -> None:
        """A machine on `node` took an event."""
        if isinstance(event, TimerFired):
            fired = (node, name_of(type(event)), event.key)
            self._fired.append(fired)
            step = self._step
            due = step is not None and (step.do == "wake" or (step.node, step.what, step.about) == fired)
            if not due and (not self._part.players or machine in self._part.players):
                self._strays.add(node)
        elif (about := self._part.said(event)) is not None:
            self._said[node, about] = self._said.get((node, about), 0) + 1

    # -- following ----------------------------------------------------------------------------------------------

    def follow(self, stage: PartyStage, after: Callable[[], None] = lambda: None) -> FollowedScript:
        """Carry out what can be carried out; `after` is called after every step.  What a step raises ends the run."""
        for step in self.script.steps:
            stage.advance(step.at_ns)
            self._begin(step)
            try:
                self._act(stage, step)
            except CannotFollow as error:
                return self.list_followed(f"step {step.n} ({step}): {error}")
            self._end(step)
            after()
        return self.list_followed("")

    def release(self) -> None:
        """The schedule is over: from now on every message arrives."""
        self._released = True

    @property
    def in_flight(self) -> int:
        """How many messages wait."""
        return len(self._flights)

    def list_followed(self, stopped: str) -> FollowedScript:
        """What came of it so far."""
        of = len(self.script.steps)
        return FollowedScript(self._done, of, stopped, tuple(self._unknown), tuple(self._missing), tuple(self._early))

    def _begin(self, step: ScriptStep) -> None:
        self._step, self._expected = step, list(step.sends)
        for sent in self._adopted.get(step.n, ()):
            self._expected[self._expected.index(sent)] = None
        self._fired.clear()
        self._strays.clear()

    def _end(self, step: ScriptStep) -> None:
        for words in (sent.words for sent in self._expected if sent is not None):
            _list(self._missing, f"step {step.n}: {words}")
        self._step, self._when = None, f"after step {step.n}"
        self._done += 1

    def _act(self, stage: PartyStage, step: ScriptStep) -> None:
        match step.do:
            case "deliver" | "copy" | "drop":
                self._move(step)
            case "start":
                stage.start(step.node)
            case "crash":
                stage.crash(step.node)
            case "lose_disk":
                stage.lose_disk(step.node)
            case "restart":
                stage.restart(step.node)
            case "pause":
                stage.pause(step.node)
            case "wake":
                stage.wake(step.node)
            case "fire" | "pass":
                pass  # the timer is due now; time has passed
            case word if word not in self._part.by_itself:
                stage.do(step)
        stage.settle()
        if step.do == "fire" and (step.node, step.what, step.about) not in self._fired:
            raise CannotFollow("the timer is not due, or not set")
        if step.do in self._part.by_itself:
            self._has_said(step)

    def _move(self, step: ScriptStep) -> None:
        place = (step.sent_in, step.words, step.nth)
        flight = next((one for one in self._flights if (one.sent_in, one.words, one.nth) == place), None)
        if flight is None:
            raise CannotFollow("nobody sent it, so it is not in flight")
        if step.do != "copy":
            self._flights.remove(flight)
        (flight.lose if step.do == "drop" else flight.hand_over)()

    def _has_said(self, step: ScriptStep) -> None:
        key = (step.node, step.about)
        if not self._said.get(key, 0):
            raise CannotFollow(f"it has not done so by itself: {self._part.words[step.do]}")
        self._said[key] -= 1

    # -- names --------------------------------------------------------------------------------------------------

    def _place(self, step: ScriptStep, words: MessageName) -> int | None:
        """Which of the expected messages it is: of that name, or else one that differs in the last word only."""
        named = [(at, sent.words) for at, sent in enumerate(self._expected) if sent is not None]
        exact = next((at for at, known in named if known == words), None)
        if exact is not None or self._later(step, words) is not None:
            return exact
        return next((at for at, known in named if alike(known, words)), None)

    def _later(self, step: ScriptStep, words: MessageName) -> tuple[ScriptStep, SentMessage] | None:
        """The last word on something that a later step expects: a real host with nothing left to do says it at once."""
        if not words.final:
            return None
        by_itself = self._part.by_itself
        for later in self.script.steps:
            if later.do in by_itself and later.n > step.n and (later.node, later.about) == (words.sender, words.about):
                open_ = [one for one in later.sends if one.words == words]
                if open_ and not self._adopted.get(later.n):
                    return later, open_[0]
        return None

    def _post(self, n: int, sent: SentMessage, hand_over: Callable[[], None], lose: Callable[[], None]) -> None:
        if sent.lost:
            lose()
            return
        key = (n, sent.words)
        nth = self._counted.get(key, 0)
        self._counted[key] = nth + 1
        self._flights.append(Flight(sent.words, n, nth, hand_over, lose))


def _list(lines: list[str], line: str) -> None:
    if len(lines) < LISTED_MAX:
        lines.append(line)
