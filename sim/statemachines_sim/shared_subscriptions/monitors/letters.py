"""Letters: dead letters of messages that the group gave up, by which S21 is judged."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Answer, Request, Step, Tell
from statemachines.shared_subscriptions.dead_letter import LetterStored, StoreLetter
from statemachines.shared_subscriptions.failed_deliveries import MessageDropped
from statemachines.shared_subscriptions.properties.failing_history import check_letter, check_no_letter, check_passed
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
        self._judge.report_properties(check_letter(message, self.stored))
        self.stored.add(message)

    def step(self, step: Step[Any]) -> None:
        """A leader takes a step."""
        for effect in step.effects:
            if isinstance(effect, Tell) and isinstance(effect.event, MessageDropped):
                self._judge.report_properties(check_passed(effect.event, self.stored))

    def deliver(self, event: Deliver) -> None:
        """An application gets messages."""
        if self.stored:
            self._judge.report_properties(check_no_letter(event, self.stored))
