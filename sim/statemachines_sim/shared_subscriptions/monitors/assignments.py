"""Assignments: what leaders give to whom, by which S2, S4, S8, S9 and S13 are judged; L3 where nothing is wrong: nobody
is kicked over a revoke."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statemachines.kernel import ChildStep
from statemachines.shared_subscriptions.assignment import NONE, Assign, RevokeTimeout
from statemachines.shared_subscriptions.message import END_OF_STREAM, Disconnect, Ranges, Report, UpdateProgress
from statemachines.shared_subscriptions.properties.granted_stream import GrantedStream, check_generations
from statemachines.shared_subscriptions.properties.settled_group import find_kick
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.monitors.commits import Commits
from statemachines_sim.shared_subscriptions.monitors.progress import Progress

UNGRANTED = GrantedStream()


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
        self._streams: dict[tuple[str, str], GrantedStream] = {}

    def step(self, leader: str, child: ChildStep) -> None:
        """A step of an assignment."""
        assignment = child.record
        key, event = (leader, assignment.stream), child.event
        kind = type(event)
        if kind is Assign:
            self._grant(key, assignment)
        elif kind is RevokeTimeout and self.calm and child.source is not assignment.status:
            self._judge.report_properties(find_kick(assignment.link.borrower, assignment.stream))
        elif kind is UpdateProgress and child.source is not NONE:
            self._accept(key, event, assignment.progress)  # type: ignore[arg-type]
        if assignment.status is NONE and key in self._streams:
            self._streams[key] = self._streams[key].observe_end(child.number)

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
                key = (leader, report.stream)
                self._streams[key] = self._streams[key].observe_report(report.progress)

    def _grant(self, key: tuple[str, str], assignment: Any) -> None:
        leader, stream = key
        self._streams[key], broken = self._streams.get(key, UNGRANTED).observe_grant(
            leader, assignment, self._commits.find_durable(stream)
        )
        broken += check_generations(
            leader, stream, self._progress.list_before(stream), lambda other: self._is_read(leader, other)
        )
        if broken:
            self._judge.report_properties(broken)
        self.grants[leader, assignment.grant] = (stream, assignment.link.borrower, assignment.progress)
        if assignment.relaxed:
            self.acked[leader, assignment.grant] = assignment.acked
            self._progress.check_ranges(stream, assignment.acked, "granted as acknowledged")

    def _is_read(self, leader: str, stream: str) -> bool:
        accepted = self._streams.get((leader, stream), UNGRANTED).accepted
        return accepted == END_OF_STREAM or self._commits.find_durable(stream) == END_OF_STREAM

    def _accept(self, key: tuple[str, str], event: UpdateProgress, kept: int) -> None:
        leader, stream = key
        self._streams[key], broken = self._streams.get(key, UNGRANTED).observe_progress(leader, event, kept)
        if broken:
            self._judge.report_properties(broken)
        self._progress.check(stream, event.progress, "accepted")
        if (leader, event.grant) in self.acked:
            self._progress.check_ranges(stream, event.acked, "accepted as acknowledged")
