"""A Borrower as one would write it by hand: a mutable class, dictionaries, if and elif.  The baseline of two rows.

It does for a connecting and connected borrower what the table does, and returns equal effects for equal events (a
test compares them).  It has no table, no records to keep, no rows to report and no clauses; unsubscribing and what
ends a borrower are left out.
"""

from __future__ import annotations

from statemachines.kernel import CancelTimer, Effect, Event, Send, SetTimer, Tell
from statemachines.shared_subscriptions.acknowledged_ranges import limit_reports
from statemachines.shared_subscriptions.borrower import REPORTS_PER_PING, LeaseBegan, PingTimer, Start
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Grant,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Ranges,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream import Finish, Install, StreamProgress, Uninstall


class HandStream:
    """One stream: `grant` is the number held or, absent, the highest seen; what follows `finished` as in a `Report`."""

    __slots__ = ("acked", "failed", "finished", "grant", "in_hand", "name", "progress", "reason", "status")

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = "absent"
        self.grant = 0
        self.progress = 0
        self.finished = False
        self.failed = 0
        self.in_hand = False
        self.acked: Ranges = ()
        self.reason = ""


class HandBorrower:
    """One borrower; `feed(event, now_ns)` returns what is to be done."""

    def __init__(
        self, borrower: str, group: str, topic_filter: str, registry: str, configuration: Configuration
    ) -> None:
        self.id = borrower
        self.group = group
        self.filter = topic_filter
        self.registry = registry
        self.configuration = configuration
        self.status = "connecting"
        self.leader = ""
        self.epoch = 0
        self.registration = 0
        self.ping_n = 0
        self.ping_at_ns = 0
        self.outstanding = False
        self.leased = False
        self.streams: dict[str, HandStream] = {}
        self.changed: set[str] = set()
        self.carried: set[str] = set()
        self.unfinished = 0

    def feed(self, event: Event, now_ns: int) -> list[Effect]:
        """Do what the event asks for; raises ValueError for an event that this class leaves out."""
        if self.status == "connected":
            if isinstance(event, StreamProgress):
                return self._progress(event)
            if isinstance(event, Grant):
                return self._grant(event) if self._is_mine(event) else []
            if isinstance(event, Revoke):
                return self._revoke(event) if self._is_mine(event) else []
            if isinstance(event, Revoked):
                return self._revoked(event) if self._is_mine(event) else []
            if isinstance(event, PingResponse):
                return self._answered(event, now_ns) if self._is_mine(event) else []
            if isinstance(event, PingTimer):
                timeout = SetTimer("ping_timeout", now_ns + self.configuration.ping_timeout_ms * MS)
                return [timeout, self._ping(now_ns)]
        elif isinstance(event, Start):
            return [Send(self.registry, LeaderWanted(self.id, self.group, self.filter))]
        elif isinstance(event, LeaderConnectResponse):
            return self._adopt(event, now_ns) if event.epoch >= self.epoch else []
        raise ValueError(f"a {self.status} hand-written borrower does not take {type(event).__name__}")

    def _is_mine(self, event: Grant | Revoke | Revoked | PingResponse) -> bool:
        return event.epoch == self.epoch and event.registration == self.registration

    def _adopt(self, event: LeaderConnectResponse, now_ns: int) -> list[Effect]:
        self.leader, self.epoch, self.registration = event.leader, event.epoch, event.registration
        self.status = "connected"
        timeout = SetTimer("ping_timeout", now_ns + self.configuration.ping_timeout_ms * MS)
        return [CancelTimer("find_leader"), timeout, self._ping(now_ns)]

    def _ping(self, now_ns: int) -> Send:
        names = sorted(self.carried) + sorted(self.changed - self.carried)
        names = names[:REPORTS_PER_PING]
        reports = limit_reports(tuple(self._report(self.streams[name]) for name in names))
        self.ping_n += 1
        self.ping_at_ns = now_ns
        self.outstanding = True
        self.carried = set(names)
        self.changed -= self.carried
        return Send(self.leader, Ping(self.id, self.epoch, self.registration, self.ping_n, reports))

    def _report(self, stream: HandStream) -> Report:
        said = (stream.failed, stream.in_hand, stream.acked, stream.reason)
        return Report(stream.name, stream.grant, stream.progress, stream.finished, *said)

    def _answered(self, event: PingResponse, now_ns: int) -> list[Effect]:
        if not self.outstanding or event.n != self.ping_n:
            return []
        effects: list[Effect] = [
            CancelTimer("ping_timeout"),
            SetTimer("ping", now_ns + self.configuration.ping_interval_ms * MS),
            SetTimer("lease", self.ping_at_ns + self.configuration.lease_ms * MS),
        ]
        if not self.leased:
            effects.append(Tell(LeaseBegan(self.id)))
        self.outstanding = False
        self.leased = True
        self.carried = set()
        return effects

    def _progress(self, event: StreamProgress) -> list[Effect]:
        stream = self.streams.get(event.stream)
        if stream is None or stream.status == "absent" or event.grant != stream.grant:
            return []
        if event.progress < stream.progress:
            return []
        stream.progress = event.progress
        stream.failed = event.failed
        stream.in_hand = event.in_hand
        stream.acked = event.acked
        stream.reason = event.reason
        if not stream.finished and (event.finished or event.progress == END_OF_STREAM):
            stream.finished = True
            self.unfinished -= 1
        self.changed.add(stream.name)
        return [self._update(stream)]

    def _grant(self, event: Grant) -> list[Effect]:
        effects: list[Effect] = []
        stream = self.streams.get(event.stream)
        if stream is None:
            stream = self.streams[event.stream] = HandStream(event.stream)
        if stream.status != "absent":
            if event.grant == stream.grant:
                return [self._update(stream)]
            if event.grant < stream.grant:
                return []
            effects = [self._drop(stream)]
        elif event.grant <= stream.grant:
            return []
        stream.status = "granted"
        stream.grant = event.grant
        stream.progress = event.progress
        stream.finished = False
        stream.failed = event.failed
        stream.in_hand = False
        stream.acked = event.acked
        stream.reason = ""
        self.unfinished += 1
        self.changed.add(stream.name)
        said = (event.failed, event.most, event.relaxed, event.acked, event.repeats)
        install = Install(self.id, stream.name, stream.grant, stream.progress, *said)
        return [*effects, Tell(install), self._update(stream)]

    def _revoke(self, event: Revoke) -> list[Effect]:
        stream = self.streams.get(event.stream)
        if stream is not None and stream.status != "absent" and event.grant == stream.grant:
            if stream.status == "revoking":
                return [self._update(stream)]
            stream.status = "revoking"
            self.changed.add(stream.name)
            return [Tell(Finish(self.id, stream.name, stream.grant)), self._update(stream)]
        return self._forget(event)

    def _revoked(self, event: Revoked) -> list[Effect]:
        stream = self.streams.get(event.stream)
        if stream is not None and stream.status != "absent" and event.grant == stream.grant:
            return [self._drop(stream), self._confirm(event)]
        return self._forget(event)

    def _forget(self, event: Revoke | Revoked) -> list[Effect]:
        """Of a grant that is not held: what is held under a lower number is dropped, the number counts as seen."""
        stream = self.streams.get(event.stream)
        if stream is None:
            stream = self.streams[event.stream] = HandStream(event.stream)
        effects: list[Effect] = []
        if event.grant > stream.grant:
            if stream.status != "absent":
                effects.append(self._drop(stream))
            stream.grant = event.grant
        return [*effects, self._confirm(event)]

    def _drop(self, stream: HandStream) -> Tell:
        if not stream.finished:
            self.unfinished -= 1
        stream.status = "absent"
        self.changed.discard(stream.name)
        self.carried.discard(stream.name)
        return Tell(Uninstall(self.id, stream.name, stream.grant))

    def _update(self, stream: HandStream) -> Send:
        update = UpdateProgress(
            self.id,
            self.epoch,
            self.registration,
            stream.name,
            stream.grant,
            stream.progress,
            stream.finished,
            stream.failed,
            stream.in_hand,
            stream.acked,
            stream.reason,
        )
        return Send(self.leader, update)

    def _confirm(self, event: Revoke | Revoked) -> Send:
        finished = RevokeFinished(self.id, self.epoch, self.registration, event.stream, event.grant)
        return Send(self.leader, finished)
