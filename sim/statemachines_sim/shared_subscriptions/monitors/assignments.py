"""Assignments: what leaders give to whom.  S2, S4, S8, S9; S13 where a grant begins below what was accepted; L3 where
nothing is wrong: nobody is kicked over a revoke."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statemachines.kernel import ChildStep
from statemachines.shared_subscriptions.assignment import NONE, Assign, RevokeTimeout
from statemachines.shared_subscriptions.message import END_OF_STREAM, Disconnect, Ranges, Report, UpdateProgress
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.monitors.commits import Commits
from statemachines_sim.shared_subscriptions.monitors.progress import Progress


class Assignments:
    """`grants`: (leader, grant) -> stream, borrower, first offset; `acked`: the same of those whose order is relaxed ->
    what was acknowledged behind that.  `calm`: there are no faults, and applications are
    quick: a revoke is always finished in time."""

    def __init__(self, judge: Judge, commits: Commits, progress: Progress) -> None:
        self.calm = False
        self.grants: dict[tuple[str, int], tuple[str, str, int]] = {}
        self.acked: dict[tuple[str, int], Ranges] = {}
        self._judge = judge
        self._commits = commits
        self._progress = progress
        self._assigned: dict[tuple[str, str], int] = {}
        self._accepted: dict[tuple[str, str], int] = {}

    def step(self, leader: str, child: ChildStep) -> None:
        """A step of an assignment."""
        assignment = child.record
        stream, grant, event = assignment.stream, child.number, child.event
        kind = type(event)
        if kind is Assign:
            self._granted(leader, stream, grant, assignment)
        elif kind is RevokeTimeout and self.calm and child.source is not assignment.status:
            self._judge.report_broken("L3", f"{assignment.link.borrower} is kicked over {stream}, and nothing is wrong")
        elif kind is UpdateProgress and child.source is not NONE:
            self._accept(leader, stream, event, assignment.progress)
        if assignment.status is NONE and self._assigned.get((leader, stream)) == grant:
            del self._assigned[leader, stream]

    def observe_lie(self, leader: str, borrower: str, reports: Iterable[Report | UpdateProgress]) -> None:
        """What a liar has told a leader of streams that are or were its own."""
        for report in reports:
            granted = self.grants.get((leader, report.grant))
            if granted is not None and granted[:2] == (report.stream, borrower):
                self._progress.say(report.stream, report.progress)

    def find_claimed(self, stream: str) -> int:
        """Of a stream of which a liar has spoken: below what its word was taken for."""
        acked = self._progress.acked.get(stream)
        return acked.prefix if acked is not None and stream in self._progress.said else 0

    def farewell(self, leader: str, word: Disconnect) -> None:
        """A borrower's last word: what it says of its grants counts as accepted."""
        for report in word.reports:
            self._progress.check(report.stream, report.progress, "accepted")
            granted = self.grants.get((leader, report.grant))
            if granted is not None and granted[:2] == (report.stream, word.borrower):
                known = self._accepted.get((leader, report.stream), 0)
                self._accepted[leader, report.stream] = max(known, report.progress)

    def _granted(self, leader: str, stream: str, grant: int, assignment: Any) -> None:
        held = self._assigned.get((leader, stream))
        if held is not None:
            self._judge.report_broken("S2", f"{leader} assigns {stream} under {grant} while {held} stands")
        self._assigned[leader, stream] = grant
        accepted = self._find_known(leader, stream)
        if END_OF_STREAM in (accepted, assignment.progress):
            self._judge.report_broken("S8", f"{leader} grants {stream}, which has ended")
        for other in self._progress.before(stream):
            if self._find_known(leader, other) != END_OF_STREAM:
                self._judge.report_broken("S9", f"{leader} grants {stream} before {other} is read to its end")
        if assignment.progress < accepted:
            self._judge.report_broken("S13", f"{leader} grants {stream} from {assignment.progress}, below {accepted}")
        self.grants[leader, grant] = (stream, assignment.link.borrower, assignment.progress)
        if assignment.relaxed:
            self.acked[leader, grant] = assignment.acked
            self._progress.check_ranges(stream, assignment.acked, "granted as acknowledged")

    def _find_known(self, leader: str, stream: str) -> int:
        return max(self._accepted.get((leader, stream), 0), self._commits.durable.get(stream, 0))

    def _accept(self, leader: str, stream: str, event: Any, kept: int) -> None:
        owned, borrower, _ = self.grants[leader, event.grant]
        if self._assigned.get((leader, stream)) != event.grant or (owned, borrower) != (stream, event.borrower):
            self._judge.report_broken(
                "S4", f"{leader} takes progress of {stream} under {event.grant} from {event.borrower}"
            )
        self._progress.check(stream, event.progress, "accepted")
        if (leader, event.grant) in self.acked:
            self._progress.check_ranges(stream, event.acked, "accepted as acknowledged")
        known = self._accepted.get((leader, stream), 0)
        if known == END_OF_STREAM != kept:
            self._judge.report_broken("S8", f"{stream} has ended, and {leader} goes on from {kept}")
        self._accepted[leader, stream] = max(known, event.progress)
