"""WireCourse: what a run over the wire has come to: its time, its counts, what happened, and the verdict."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any, Final

from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.conformance_run import ConformanceViolation
from statemachines.testing.conformance.interface import InterfaceError
from statemachines.testing.conformance.wire_choice import WireChoice
from statemachines.testing.conformance.wire_verdict import Note, WireOptions, WireVerdict

NOTES_MAX: Final = 200


class WireCourse:
    """One run as it goes.

    Args:
        configuration: the times of the protocol.
    """

    def __init__(self, options: WireOptions, configuration: Any) -> None:
        self.options = options
        self.configuration = configuration
        self.tolerance_ns = int(options.tolerance_s * 1e9)
        self.choice = WireChoice(options.seed, options.without)
        self.counts: Counter[str] = Counter()
        self.started_ns = self.settled_ns = time.monotonic_ns()
        """`settled_ns`: all that had come by this moment was looked at."""
        self.verdict: WireVerdict | None = None
        self.error: InterfaceError | None = None
        self._notes: deque[Note] = deque(maxlen=NOTES_MAX)
        self._hold_until_ns = 0
        self._held_ns = 0

    @property
    def is_decided(self) -> bool:
        """Whether nothing more is looked at."""
        return self.verdict is not None or self.error is not None

    def now_ns(self) -> int:
        """The time."""
        return time.monotonic_ns()

    def begin(self) -> None:
        """The run begins now."""
        self.started_ns = self.settled_ns = self.now_ns()

    def look_at_time(self, before_ns: int) -> int:
        """The time, after a sleep that began at `before_ns`; a kit that slept too long judges nothing for a while."""
        now_ns = self.now_ns()
        if now_ns - before_ns > self.tolerance_ns // 2:
            self._hold_until_ns = now_ns + self.tolerance_ns  # the kit was late itself
            self._held_ns += now_ns - before_ns + self.tolerance_ns
        if now_ns >= self._hold_until_ns:
            self.settled_ns = before_ns
        return now_ns

    @property
    def was_late(self) -> bool:
        """Whether the kit could judge too little."""
        return self._held_ns > self.options.seconds * 1e9 / 2

    # -- what happened ------------------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """Keep a line of what happened."""
        self._notes.append(Note(self.now_ns() - self.started_ns, what))

    def count_sent(self, what: str) -> None:
        """A message of the kit is sent."""
        self.counts["messages sent"] += 1
        self.note(what)

    def fail(self, why: str, instance: str = "", violation: ConformanceViolation | None = None) -> None:
        """Something is wrong with the implementation."""
        self._decide(ConformanceOutcome.FAIL, why, violation, instance)

    def give_up(self, why: str) -> None:
        """It cannot be judged."""
        self._decide(ConformanceOutcome.INCONCLUSIVE, why)

    def conclude(self, why: str) -> None:
        """The run is over, and nothing was wrong; `why` it shows nothing ("": it does)."""
        if not self.is_decided:
            self._decide(ConformanceOutcome.INCONCLUSIVE if why else ConformanceOutcome.PASS, why)

    def refuse(self, why: str) -> None:
        """The implementation speaks something else."""
        if not self.is_decided:
            self.error = InterfaceError(why)

    def _decide(
        self, outcome: ConformanceOutcome, why: str, violation: ConformanceViolation | None = None, instance: str = ""
    ) -> None:
        if self.is_decided:
            return
        self.verdict = WireVerdict(
            outcome,
            why,
            violation,
            instance,
            tuple(self._notes),
            counts=dict(self.counts),
            at_ns=self.now_ns() - self.started_ns,
            inputs=tuple(self.choice.inputs),
            faults=tuple(self.choice.faults),
        )
