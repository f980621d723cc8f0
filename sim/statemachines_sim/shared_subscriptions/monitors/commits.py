"""Commits: what the group store takes in.  S3, S6, S7 and S8 over the durable state of every group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statemachines.kernel import Answer, Event, Node, Request, life_of, name_of
from statemachines.shared_subscriptions.claim import ClaimEnd
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    Committed,
    FailingMessage,
    Properties,
    Stored,
    Value,
)
from statemachines.shared_subscriptions.leader_record import HOLDING
from statemachines.shared_subscriptions.message import END_OF_STREAM, HOLES_MAX, Ranges
from statemachines.shared_subscriptions.names import CLAIM, FAILING, PROPERTIES, ROOT, record_key, record_name
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.monitors.coverage import Covered
from statemachines_sim.shared_subscriptions.monitors.progress import Progress


def beside(key: str, name: str) -> str:
    """The key of another record of the same group and filter."""
    said = record_name(key)
    return record_key(said.group, said.filter, name)


def least_ns(configuration: Configuration) -> int:
    """How long, in true time, a claim is watched at least by a clock that runs too fast: claim_ttl / (1+d)."""
    millionths = round(configuration.clock_drift * 1_000_000)
    return configuration.claim_ttl_ms * MS * 1_000_000 // (1_000_000 + millionths)


class HeldClaim:
    """What was committed last of one group: its claim with its stamp, the true time of that, and its root."""

    __slots__ = ("at_ns", "claim", "epoch", "leader", "root")

    def __init__(self) -> None:
        self.at_ns = 0
        self.claim: Stored | None = None
        self.leader = ""
        self.epoch = 0
        self.root = 0


class Commits:
    """S3: only the holder of the claim commits, on the last root, and a claim is taken only when nobody holds it: it
    was released, its leader was of the same life, or it has ended by any clock within the drift.  After the end of its
    claim a leader does nothing.

    `durable`: the durable progress of every stream, by the books of this monitor; `named`: every leader and epoch that
    a claim was committed for; `true_ns`: the true time, where the store's clock may be wrong, and `local_ns` what the
    clock of a party's node shows (None: they are never wrong).
    """

    def __init__(self, judge: Judge, configuration: Configuration, progress: Progress) -> None:
        self.durable: dict[str, int] = {}
        self.named: set[tuple[str, int]] = set()
        self._judge = judge
        self.true_ns: Callable[[], int] | None = None
        self.local_ns: Callable[[str], int] | None = None
        self._ttl_ns = least_ns(configuration)
        self._progress = progress
        self._held: dict[str, HeldClaim] = {}
        self._ranges: dict[str, Ranges] = {}

    def act(self, leader: Node[Any], event: Event, before: Any, now_ns: int) -> None:
        """A leader takes a step: after the end of its claim, by its own clock, nothing but that end."""
        end_ns = leader.deadline_of("claim_end")
        if end_ns is None or before not in HOLDING or type(event) is ClaimEnd:
            return
        at_ns = now_ns if self.local_ns is None else self.local_ns(leader.name)
        if at_ns >= end_ns:
            late = (at_ns - end_ns) / 1e9
            self._judge.report_broken(
                "S3", f"{leader.name} takes {name_of(type(event))} {late:.3f} s after its claim ended"
            )

    def commit(self, party: str, request: Request, answers: tuple[Answer, ...], now_ns: int) -> None:
        """The store carried `request` of `party` out at `now_ns` by its own clock, which is its stamp."""
        if not isinstance(request, Commit) or not isinstance(answers[0], Committed):
            return
        put = dict(request.put)
        key = next((key for key in put if record_name(key).name == CLAIM), "")
        if not key:
            self._declare(party, put, dict(request.expect))
            return
        self._claim(party, key, put[key], dict(request.expect), put.get(beside(key, ROOT)), now_ns)
        for name, value in request.put:
            stream = record_name(name).stream
            if stream and isinstance(value, int):
                self._durable(stream, value)
            elif stream:
                self.durable.pop(stream, None)
        failing = ((record_name(name).name, value) for name, value in request.put)
        for name, value in failing:
            if name.startswith(FAILING):
                self._durable_ranges(name.removeprefix(FAILING), value)

    def _durable_ranges(self, stream: str, value: object) -> None:
        """S6 and S7 of what is acknowledged behind a progress: it stays so, or the progress has passed it."""
        acked = value.acked if isinstance(value, FailingMessage) else ()
        self._progress.check_ranges(stream, acked, "durable")
        now = Covered()
        now.add(0, self.durable.get(stream, 0) - 1)
        for first, last in acked:
            now.add(first, last)
        lost = [one for one in self._ranges.get(stream, ()) if stream in self.durable and not now.has(*one)]
        if lost and len(acked) < HOLES_MAX:
            self._judge.report_broken("S7", f"{stream}: {lost[0][0]} to {lost[0][1]} were durable, and are no more")
        self._ranges[stream] = acked

    def _declare(self, party: str, put: dict[str, Value | None], expect: dict[str, Stored | None]) -> None:
        """Without the claim a group is declared or marked, and what is left of a marked one removed; nothing else."""
        for name, value in put.items():
            said = record_name(name)
            mark = expect.get(beside(name, PROPERTIES))
            marked = mark is not None and isinstance(mark.value, Properties) and mark.value.destroyed
            if said.stream and value is None and marked:
                self.durable.pop(said.stream, None)
            elif said.name != PROPERTIES:
                self._judge.report_broken("S3", f"{party} commits {name} without the claim")

    def _claim(
        self, party: str, key: str, claim: object, expect: dict[str, Stored | None], root: object, now_ns: int
    ) -> None:
        held = self._held.setdefault(key, HeldClaim())
        assert isinstance(claim, Claim)
        if key in expect and expect[key] != held.claim:
            self._judge.report_broken(
                "S3", f"{party} finds the claim {expect[key]}, and {held.claim} was committed last"
            )
        true_ns = now_ns if self.true_ns is None else self.true_ns()
        if root is None:
            self._take(party, held, claim, true_ns)
        else:
            self._renew(party, held, claim, root)
        self.named.add((claim.leader, claim.epoch))
        held.claim, held.leader, held.epoch, held.at_ns = Stored(claim, now_ns), claim.leader, claim.epoch, true_ns

    def _take(self, party: str, held: HeldClaim, claim: Claim, true_ns: int) -> None:
        if claim.leader != party or claim.epoch <= held.epoch:
            self._judge.report_broken(
                "S3", f"{party} claims for {claim.leader} under epoch {claim.epoch}, after epoch {held.epoch}"
            )
        if held.leader and life_of(held.leader) != life_of(party) and true_ns < held.at_ns + self._ttl_ns:
            self._judge.report_broken("S3", f"{party} takes the claim of {held.leader} before it has ended")

    def _renew(self, party: str, held: HeldClaim, claim: Claim, root: object) -> None:
        if held.leader != party or claim.leader not in (party, "") or claim.epoch != held.epoch:
            self._judge.report_broken(
                "S3",
                f"{party} commits under epoch {claim.epoch}; {held.leader or 'nobody'} holds epoch {held.epoch}",
            )
        if root != held.root + 1:
            self._judge.report_broken("S3", f"{party} commits root {root} on root {held.root}")
        held.root = root if isinstance(root, int) else held.root

    def _durable(self, stream: str, progress: int) -> None:
        known = self.durable.get(stream, 0)
        if known == END_OF_STREAM != progress:
            self._judge.report_broken("S8", f"{stream} has ended, and its durable progress becomes {progress}")
        elif progress < known:
            self._judge.report_broken("S7", f"{stream}: durable progress falls from {known} to {progress}")
        self.durable[stream] = progress
        self._progress.check(stream, progress, "durable")
