"""CommittedClaim: S3, who may commit; S17, whom a borrower follows."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from statemachines.kernel import BrokenProperty, life_of
from statemachines.shared_subscriptions.group_store import Claim, Commit, Properties, StoredRecord, Value
from statemachines.shared_subscriptions.names import CLAIM, PROPERTIES, ROOT, record_key, record_name
from statemachines.shared_subscriptions.stream import StreamLink


class CommittedClaim(msgspec.Struct, frozen=True, gc=False):
    """Of one group: its `claim` and `root` as they were committed last."""

    claim: StoredRecord | None = None
    root: int = 0

    @property
    def leader(self) -> str:
        """Who holds the claim ("": nobody)."""
        return self.claim.value.leader if self.claim is not None and isinstance(self.claim.value, Claim) else ""

    @property
    def epoch(self) -> int:
        """The last epoch."""
        return self.claim.value.epoch if self.claim is not None and isinstance(self.claim.value, Claim) else 0

    def observe(
        self, party: str, batch: Commit, is_over: bool, stamp: int
    ) -> tuple[CommittedClaim, tuple[BrokenProperty, ...]]:
        """The store has carried out a batch of `party` that puts the claim, under this stamp.  `is_over`: the claim of
        before has ended by any clock within the drift."""
        put, expect = dict(batch.put), dict(batch.expect)
        key = find_claim(put)
        claim, root = put[key], put.get(find_beside(key, ROOT))
        if not isinstance(claim, Claim):
            return self, (BrokenProperty("S3", f"{party} removes the claim of {self.leader or 'nobody'}"),)
        broken: tuple[BrokenProperty, ...] = ()
        if key in expect and expect[key] != self.claim:
            detail = f"{party} finds the claim {expect[key]}, and {self.claim} was committed last"
            broken = (BrokenProperty("S3", detail),)
        if root is None:
            broken += self._check_taking(party, claim, is_over)
        else:
            broken += self._check_holding(party, claim, root)
        return CommittedClaim(StoredRecord(claim, stamp), root if isinstance(root, int) else self.root), broken

    def _check_taking(self, party: str, claim: Claim, is_over: bool) -> tuple[BrokenProperty, ...]:
        """Nobody takes the claim of another before it has ended."""
        if claim.leader != party or claim.epoch <= self.epoch:
            detail = f"{party} claims for {claim.leader} under epoch {claim.epoch}, after epoch {self.epoch}"
            return (BrokenProperty("S3", detail),)
        if self.leader and not is_over and life_of(self.leader) != life_of(party):
            return (BrokenProperty("S3", f"{party} takes the claim of {self.leader} before it has ended"),)
        return ()

    def _check_holding(self, party: str, claim: Claim, root: object) -> tuple[BrokenProperty, ...]:
        """Only its holder commits under a claim, and on the last root."""
        if self.leader != party or claim.leader not in (party, "") or claim.epoch != self.epoch:
            holder = self.leader or "nobody"
            detail = f"{party} commits under epoch {claim.epoch}; {holder} holds epoch {self.epoch}"
            return (BrokenProperty("S3", detail),)
        if root != self.root + 1:
            return (BrokenProperty("S3", f"{party} commits root {root} on root {self.root}"),)
        return ()


def find_claim(put: Mapping[str, Value | None]) -> str:
    """The key of the claim in a batch ("": it puts none)."""
    return next((key for key in put if record_name(key).name == CLAIM), "")


def find_beside(key: str, name: str) -> str:
    """The key of another record of the same group and filter."""
    known = record_name(key)
    return record_key(known.group, known.filter, name)


def check_unclaimed(party: str, batch: Commit) -> tuple[BrokenProperty, ...]:
    """Without the claim a group is declared or marked, and what is left of a marked one removed; nothing else."""
    expect = dict(batch.expect)
    for key, value in batch.put:
        mark = expect.get(find_beside(key, PROPERTIES))
        is_marked = mark is not None and isinstance(mark.value, Properties) and mark.value.destroyed
        is_removal = record_name(key).stream and value is None and is_marked
        if not is_removal and record_name(key).name != PROPERTIES:
            return (BrokenProperty("S3", f"{party} commits {key} without the claim"),)
    return ()


def check_leader(borrower: str, link: StreamLink, named: Container[tuple[str, int]]) -> tuple[BrokenProperty, ...]:
    """A borrower follows nobody but a leader and an epoch that the claim has `named`."""
    if (link.leader, link.epoch) in named:
        return ()
    return (BrokenProperty("S17", f"{borrower} follows {link.leader} of epoch {link.epoch}, whom no claim has named"),)
