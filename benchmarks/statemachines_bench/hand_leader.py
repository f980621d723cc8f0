"""What a Leader does with `update_progress`, as one would write it by hand: the baseline of one row.

Dictionaries, changed in place; equal effects for equal events of members that hold what they report on (a test
compares them).  The rest of a leader is left out.
"""

from __future__ import annotations

from statemachines.kernel import Effect, SetTimer
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import END_OF_STREAM, UpdateProgress


class HandAssignment:
    """One stream given to one borrower."""

    __slots__ = ("borrower", "grant", "progress")

    def __init__(self, borrower: str, grant: int, progress: int) -> None:
        self.borrower = borrower
        self.grant = grant
        self.progress = progress


class HandLeader:
    """A leader whose streams are all granted; `members`: borrower -> registration."""

    def __init__(self, epoch: int, configuration: Configuration) -> None:
        self.epoch = epoch
        self.configuration = configuration
        self.members: dict[str, int] = {}
        self.expires_at_ns: dict[str, int] = {}
        self.assignments: dict[str, HandAssignment] = {}
        self.staged: dict[str, int] = {}

    def feed(self, event: UpdateProgress, now_ns: int) -> list[Effect]:
        """Take progress in; raises ValueError for what this class leaves out."""
        if event.epoch != self.epoch or self.members.get(event.borrower) != event.registration:
            raise ValueError(f"{event.borrower} is not registered")
        assignment = self.assignments.get(event.stream)
        if assignment is None or assignment.grant != event.grant or assignment.borrower != event.borrower:
            raise ValueError(f"{event.borrower} does not hold {event.stream}")
        if event.progress == END_OF_STREAM:
            raise ValueError("the end of a stream is left out")
        expiry = now_ns + self.configuration.validity_ms * MS
        self.expires_at_ns[event.borrower] = expiry
        effects: list[Effect] = [SetTimer("expiry", expiry, event.borrower)]
        if event.progress > assignment.progress:
            assignment.progress = event.progress
            if not self.staged:
                effects.append(SetTimer("commit", now_ns + self.configuration.commit_interval_ms * MS))
            self.staged[event.stream] = event.progress
        return effects
