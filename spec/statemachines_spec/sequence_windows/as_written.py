"""As written: numbering and judging by the words of the source, where they lose messages or repeat them.

What differs from the shipped machines: a stream that begins has the frame of now, whatever was before; what goes on
under a new frame says nothing of what was before; a map of subjects has one sequence for all publishers of each; a TIME
makes a receiver synchronise before it looks at anything else; a number that is ahead is so many messages ahead.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.sequence_windows.message import LOSS_MAX, Judged, Numbered, Verdict
from statemachines.sequence_windows.publisher_window import ABSENT, CURRENT, Publish, Stamped
from statemachines.sequence_windows.sequence import BASE_MAX, base_of, frame_at, frame_of
from statemachines.sequence_windows.subscriber_window import CURRENT as KNOWN
from statemachines.sequence_windows.subscriber_window import FRESH, UNSUBSCRIBED
from statemachines_spec.explorer.actor import Watch
from statemachines_spec.sequence_windows.rules import Outcome, WindowRules


class WindowRulesAsWritten(WindowRules):
    """The source, word for word."""

    by_publisher = False

    def stamp(self, record: Any, event: Publish, name: str, watch: Watch | None) -> Outcome:
        used_up = base_of(record.last) == BASE_MAX
        cycled = event.converged_ns and frame_of(record.last) < frame_at(event.converged_ns)
        if record.status is ABSENT or used_up or cycled:
            frame = frame_at(event.t_ns)
            told = Stamped(frame, 1, 1, event.t_ns)
        else:
            frame, base = frame_of(record.last), base_of(record.last) + 1
            told = Stamped(frame, base, base)
        return replace(record, status=CURRENT, last=told.number), (told,)

    def judge(self, record: Any, event: Numbered, name: str, watch: Watch | None) -> Outcome:
        if record.status is UNSUBSCRIBED:
            return record, (self._judge(Verdict.NOT_SUBSCRIBED, event),)
        after = replace(record, status=KNOWN, last=event.end)
        if record.status is FRESH:
            return after, (self._judge(Verdict.FIRST, event),)
        if event.time_ns:
            return after, (self._judge(Verdict.CYCLE, event),)
        if event.number <= record.last:
            return record, (self._judge(Verdict.REPEAT, event),)
        lost = min(event.number - record.last - 1, LOSS_MAX)
        return after, (self._judge(Verdict.SKIP if lost else Verdict.NEXT, event, lost),)

    @staticmethod
    def _judge(verdict: Verdict, event: Numbered, lost: int = 0) -> Judged:
        return Judged(verdict, event.frame, event.first, event.last, lost)


AS_WRITTEN = WindowRulesAsWritten()
