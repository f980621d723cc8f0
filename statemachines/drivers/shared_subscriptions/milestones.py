"""Milestones: what happens to the groups of a leader host, as lines of its log (logger "gapless", INFO).

Who leads since when, and why no longer; who is a member, and why no longer; how many streams changed hands.  It sees
every step and changes nothing; in one that is none of these it costs a look at the steps of the children.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Final

from statemachines.kernel import Effect, Event, Node, SetTimer, Step, Tell
from statemachines.kernel.node import Observer
from statemachines.kernel.row import ChildStep
from statemachines.shared_subscriptions.assignment import (
    ASSIGNMENT,
    Assign,
    GrantTimeout,
    RevokeTimeout,
    TakeBack,
    Vanish,
)
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.leader import LEADER, Resigned
from statemachines.shared_subscriptions.leader_record import HOLDING, RESIGNED, LeaderRecord
from statemachines.shared_subscriptions.member import GONE, LAPSED, MEMBER, REGISTERED, ExpiryTimer, HandOverTimer, Kick
from statemachines.shared_subscriptions.message import Disconnect
from statemachines.shared_subscriptions.stream_store import Measured
from statemachines.wire import quote_for_log

logger = logging.getLogger("gapless")

LATE: Final = 0.5
"""A claim that is renewed after this part of `claim_ttl`, or more, is renewed late."""

LINES_MAX: Final = 200
"""Lines about members within `WINDOW_NS`: who comes and goes without end fills no disk, and hides nothing else."""
WINDOW_NS: Final = 60_000_000_000

MOVED_EVERY_NS: Final = 1_000_000_000
"""Streams that change hands are counted for so long, and then said in one line: they do so a few at a time."""

MOVES: Final[dict[type[Event], str]] = {Assign: "granted", TakeBack: "taken back", Vanish: "vanished"}
"""What the leader does with streams of its own accord."""

MENDS: Final = {
    "the group lives by other ping or claim times": "; start this host with the times that the group was declared with "
    "(--config), or destroy the group"
}
"""Why a leader ends -> what can be done about it."""

REGISTERING: Final = frozenset(line.number for line in LEADER.lines if line.action_name == "register")
"""The rows in which a borrower becomes a member."""

KICKED: Final[dict[type[Event], str]] = {
    GrantTimeout: "it did not answer a grant",
    RevokeTimeout: "it did not finish a stream that was taken back",
    Measured: "the store does not cover what it reported",
}
"""What a leader was doing when it kicked a member -> why."""


class MovedStreams:
    """Streams of one group that changed hands since `said_ns`, when the last line about it was logged."""

    def __init__(self) -> None:
        self.said_ns = -MOVED_EVERY_NS
        self.counts: Counter[str] = Counter()


class Milestones:
    """`node`: who it is; `then`: who sees every step after it."""

    def __init__(self, node: str, then: Observer) -> None:
        self._node = node
        self._then = then
        self._window_ns = 0
        self._lines = 0
        self._moved: dict[str, MovedStreams] = {}

    def observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every leader of the host."""
        if node.fsm is LEADER:
            self._lead(node, before, step, now_ns)
            self._share(event, step, now_ns)
        self._then(node, event, before, step, now_ns)

    def _lead(self, node: Node[Any], before: Any, step: Step[Any], now_ns: int) -> None:
        record = step.record
        for effect in step.effects:
            if type(effect) is SetTimer and effect.timer == "claim_end":
                self._claim(node.deadline_of("claim_end"), record, effect, now_ns)
            elif type(effect) is Tell and isinstance(effect.event, Resigned):
                ends = "does not lead it any more" if before in HOLDING else "does not lead it"
                self._say(record, "%s: %s%s", ends, effect.event.why, MENDS.get(effect.event.why, ""))

    def _claim(self, end_ns: int | None, record: LeaderRecord, effect: Effect, now_ns: int) -> None:
        """The claim is ours until another moment; `end_ns`: until when it was (None: it was not)."""
        if end_ns is None:
            self._say(record, "leads it, under epoch %d", record.epoch)
            return
        times = record.configuration
        since_ms = (now_ns + times.claim_by_own_clock_ns() - end_ns) / MS
        if since_ms >= LATE * times.claim_ttl_ms:
            late = "renewed its claim late, %.1f s after the last time, of %.1f s; its store is slow, or it stood still"
            self._say(record, late, since_ms / 1_000, times.claim_ttl_ms / 1_000)

    def _share(self, event: Event, step: Step[Any], now_ns: int) -> None:
        if step.row in REGISTERING:
            self._say_bounded(now_ns, step.record, "%s is a member", quote_for_log(event.borrower))  # type: ignore[attr-defined]
        for child in step.children:
            if child.fsm is MEMBER:
                self._member(event, child, step.record, now_ns)
            elif child.fsm is ASSIGNMENT and type(child.event) in MOVES and child.record.status is not child.source:
                self._moved.setdefault(step.record.id, MovedStreams()).counts[MOVES[type(child.event)]] += 1
        if step.record.id in self._moved:
            self._say_moved(self._moved[step.record.id], step.record, now_ns)

    def _say_moved(self, moved: MovedStreams, record: LeaderRecord, now_ns: int) -> None:
        """What moved since the last line, unless that was just now; a leader that has ended says the rest."""
        is_over = record.status is RESIGNED
        if moved.counts and (is_over or now_ns - moved.said_ns >= MOVED_EVERY_NS):
            told = ", ".join(f"{count} {what}" for what, count in sorted(moved.counts.items()))
            what = "streams moved: %s; it has %d members"
            self._say_bounded(now_ns, record, what, told, len(record.members))
            moved.said_ns = now_ns
            moved.counts.clear()
        if is_over:
            del self._moved[record.id]

    def _member(self, event: Event, child: ChildStep, record: LeaderRecord, now_ns: int) -> None:
        """One that is a member no longer."""
        after, who = child.record.status, quote_for_log(child.record.link.borrower)
        if after is not child.source and child.source is REGISTERED:
            waits = "; its streams wait for the end of its lease" if after is LAPSED else ""
            why = why_gone(event, child.event)
            self._say_bounded(now_ns, record, "%s is no member any more: it %s%s", who, why, waits)
        elif after is GONE and type(child.event) is HandOverTimer:
            self._say_bounded(now_ns, record, "the lease of %s has ended; its streams are free", who)

    def _say_bounded(self, now_ns: int, record: LeaderRecord, what: str, *words: object) -> None:
        """Unless there were too many of them; how many were left out is said when the time is over."""
        if now_ns - self._window_ns >= WINDOW_NS:
            if self._lines > LINES_MAX:
                left_out = "%s: %d lines about members were left out; somebody comes and goes without end"
                logger.info(left_out, self._node, self._lines - LINES_MAX)
            self._window_ns, self._lines = now_ns, 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            self._say(record, what, *words)

    def _say(self, record: LeaderRecord, what: str, *words: object) -> None:
        logger.info(
            "%s: group %s, %s: " + what, self._node, quote_for_log(record.group), quote_for_log(record.filter), *words
        )


def why_gone(event: Event, told: Event) -> str:
    """Why a member is none any more: `told` is what its machine heard, `event` what the leader did."""
    match told:
        case ExpiryTimer():
            return "expired, since nothing was heard of it"
        case Disconnect():
            return "left"
        case Kick():
            return f"was kicked, since {KICKED.get(type(event), 'it broke a rule')}"
    return type(told).__name__
