"""Commits: what the group store takes in, by which S3, S6, S7 and S8 are judged of the durable state of each group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statemachines.kernel import Answer, Event, Node, Request
from statemachines.shared_subscriptions.claim import ClaimEnd
from statemachines.shared_subscriptions.group_store import Commit, Committed, FailingMessage
from statemachines.shared_subscriptions.leader_record import HOLDING
from statemachines.shared_subscriptions.message import Ranges
from statemachines.shared_subscriptions.names import FAILING, record_name
from statemachines.shared_subscriptions.properties.committed_claim import CommittedClaim, check_unclaimed, find_claim
from statemachines.shared_subscriptions.properties.known_progress import KnownProgress, check_kept_ranges
from statemachines.shared_subscriptions.properties.time_limits import TimeLimits, check_claim_end
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.monitors.progress import Progress


class Commits:
    """`named`: every leader and epoch that a claim was committed for; `true_ns`: the true time, where the store's clock
    may be wrong, and `local_ns` what the clock of a party's node shows (None: they are never wrong)."""

    def __init__(self, judge: Judge, limits: TimeLimits, progress: Progress) -> None:
        self.named: set[tuple[str, int]] = set()
        self._judge = judge
        self.true_ns: Callable[[], int] | None = None
        self.local_ns: Callable[[str], int] | None = None
        self._limits = limits
        self._progress = progress
        self._claims: dict[str, tuple[CommittedClaim, int]] = {}
        self._durable: dict[str, KnownProgress] = {}
        self._ranges: dict[str, Ranges] = {}

    def find_durable(self, stream: str) -> int:
        """The durable progress of a stream."""
        known = self._durable.get(stream)
        return 0 if known is None else known.progress

    def act(self, leader: Node[Any], event: Event, before: Any, now_ns: int) -> None:
        """A leader takes a step: after the end of its claim, by its own clock, nothing but that end."""
        end_ns = leader.deadline_of("claim_end")
        if end_ns is None or before not in HOLDING or type(event) is ClaimEnd:
            return
        at_ns = now_ns if self.local_ns is None else self.local_ns(leader.name)
        if broken := check_claim_end(leader.name, at_ns, end_ns, event):
            self._judge.report_properties(broken)

    def commit(self, party: str, request: Request, answers: tuple[Answer, ...], now_ns: int) -> None:
        """The store carried `request` of `party` out at `now_ns` by its own clock, which is its stamp."""
        if not isinstance(request, Commit) or not isinstance(answers[0], Committed):
            return
        put = dict(request.put)
        key = find_claim(put)
        if not key:
            self._judge.report_properties(check_unclaimed(party, request))
        else:
            self._observe_claim(key, party, request, now_ns)
        for name, value in request.put:
            stream = record_name(name).stream
            if stream and isinstance(value, int):
                self._observe_progress(stream, value)
            elif stream:
                self._durable.pop(stream, None)
        for name, value in request.put if key else ():
            kind = record_name(name).name
            if kind.startswith(FAILING):
                self._observe_ranges(kind.removeprefix(FAILING), value)

    def _observe_claim(self, key: str, party: str, request: Commit, now_ns: int) -> None:
        claim, at_ns = self._claims.get(key, UNCLAIMED)
        true_ns = now_ns if self.true_ns is None else self.true_ns()
        claim, broken = claim.observe(party, request, true_ns >= at_ns + self._limits.claim_ns, now_ns)
        if broken:
            self._judge.report_properties(broken)
        self.named.add((claim.leader, claim.epoch))
        self._claims[key] = (claim, true_ns)

    def _observe_progress(self, stream: str, progress: int) -> None:
        self._durable[stream], broken = self._durable.get(stream, UNREAD).observe(stream, progress, "durable")
        if broken:
            self._judge.report_properties(broken)
        self._progress.check(stream, progress, "durable")

    def _observe_ranges(self, stream: str, value: object) -> None:
        """What is acknowledged behind a progress."""
        acked = value.acked if isinstance(value, FailingMessage) else ()
        self._progress.check_ranges(stream, acked, "durable")
        if stream in self._durable:
            known = check_kept_ranges(stream, self._ranges.get(stream, ()), self.find_durable(stream), acked)
            self._judge.report_properties(known)
        self._ranges[stream] = acked


UNCLAIMED, UNREAD = (CommittedClaim(), 0), KnownProgress()
