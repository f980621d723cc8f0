"""Letters: dead letters of messages that the group gave up.  S21: one for each, before the group goes on behind the
message, and from then on the message is handed over no more."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Answer, Request, Step, Tell
from statemachines.shared_subscriptions.dead_letter import LetterStored, StoreLetter
from statemachines.shared_subscriptions.failed_deliveries import MessageDropped
from statemachines.shared_subscriptions.session import Deliver
from statemachines_sim.judge import Judge


class Letters:
    """Those that are in the store, by stream and offset."""

    def __init__(self, judge: Judge) -> None:
        self.stored: set[tuple[str, int]] = set()
        self._judge = judge

    def store(self, request: Request, answers: tuple[Answer, ...]) -> None:
        """The stream store has carried a request out."""
        if not isinstance(request, StoreLetter):
            return
        (answer,) = answers
        if not isinstance(answer, LetterStored) or not answer.is_new:
            return
        message = (request.letter.stream, request.letter.offset)
        if message in self.stored:
            self._judge.report_broken("S21", f"{message[0]}: message {message[1]} has two dead letters")
        self.stored.add(message)

    def step(self, step: Step[Any]) -> None:
        """A leader takes a step."""
        for effect in step.effects:
            if isinstance(effect, Tell) and isinstance(effect.event, MessageDropped) and effect.event.topic:
                message = (effect.event.stream, effect.event.progress)
                if message not in self.stored:
                    what = (
                        f"{message[0]}: the group goes on behind message {message[1]}, and its dead letter is not there"
                    )
                    self._judge.report_broken("S21", what)

    def deliver(self, event: Deliver) -> None:
        """An application gets messages."""
        for offset in range(event.first, event.last + 1) if self.stored else ():
            if (event.stream, offset) in self.stored:
                what = f"{event.stream}: message {offset} is handed over, and its dead letter is stored"
                self._judge.report_broken("S21", what)
