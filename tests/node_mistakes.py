"""Shipped nodes, and mistakes to be put into them: `make test` finds some over the wire, and `make soak` all."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, NamedTuple

import planted_node

from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_run import WireRun
from statemachines.testing.conformance.wire_verdict import WireOptions

SHARED = "statemachines.shared_subscriptions."

LEADER = {
    "a stream is handed over before the lease of its owner has ended": (
        f"{SHARED}member", 'SetTimer("hand_over", end,', 'SetTimer("hand_over", now_ns,',
    ),
    "progress goes back": (
        f"{SHARED}assignment", "    if progress > record.progress:", "    if progress != record.progress:",
    ),
    "only pings show that a member lives": (
        f"{SHARED}member", "    return record, (set_silence_timer(record, now_ns),)", "    return record, ()",
    ),
    "a registration that is over is served": (
        f"{SHARED}membership",
        "    return member is not None and member.link.registration == event.registration and event.epoch",
        "    return member is not None and event.epoch",
    ),
    "the end of an earlier grant frees the stream": (
        f"{SHARED}membership", "assignment is not None and assignment.grant == grant and", "assignment is not None and",
    ),
    "shares are unequal": (f"{SHARED}plan", "(number < live % members)", "(number <= live % members)"),
    "the reports of a disconnect are lost": (
        f"{SHARED}membership",
        "    for report in event.reports:\n        if grants",
        "    for report in ():\n        if grants",
    ),
    "a finished stream is not taken back": (
        f"{SHARED}assignment", "return event.finished or event.progress", "return event.progress",
    ),
    "a registration is given out twice": (
        f"{SHARED}membership", "number = record.registration + 1", "number = record.registration or 1",
    ),
}  # fmt: skip

LEADER_COMMAND = (
    "node", "leader", "--store", "{database}", "--config", "{config}", "--listen", "{address}",
    "--state", "{directory}",
)  # fmt: skip
"""The arguments of a leader host that the kit starts."""

SESSIONS = "statemachines.persistent_sessions."

SESSION = {
    "a message that is sent again is not marked": (
        f"{SESSIONS}in_flight",
        "one, is_again = record.queued, isinstance(event, Resend)",
        "one, is_again = record.queued, False",
    ),
    "more is in flight than the client receives": (
        f"{SESSIONS}delivery",
        "len(packets) < record.receive_maximum",
        "len(packets) <= record.receive_maximum",
    ),
    "what is in flight is not sent again": (
        f"{SESSIONS}in_flight",
        '    Row(Resend,         (TAKEN, SENT),     SENT,     send_again, None,             "PS-55"),',
        '    Row(Resend,         (TAKEN, SENT),     SENT,     None, None,             "PS-55"),',
    ),
    "a packet that was received is sent again": (
        f"{SESSIONS}in_flight",
        '    Row(Resend,         (RECEIVED, RELEASED), RELEASED, release, None,             "PS-55"),',
        '    Row(Resend,         (RECEIVED, RELEASED), SENT, send_again, None,             "PS-55"),',
    ),
    "a packet is never released": (
        f"{SESSIONS}in_flight",
        '    Row(StateCommitted, RECEIVED,          RELEASED, release,    None,             "PS-52"),',
        '    Row(StateCommitted, RECEIVED,          RELEASED, None,    None,             "PS-52"),',
    ),
    "a session is told to be new": (
        f"{SESSIONS}session_life", "Tell(Accepted(record.session, record.present))",
        "Tell(Accepted(record.session, False))",
    ),
    "a clean start has the session of before": (
        f"{SESSIONS}session_life", "clean=event.clean, expiry_ms=event.expiry_ms,",
        "clean=False, expiry_ms=event.expiry_ms,",
    ),
    "a client that leaves is not told so": (
        "statemachines.drivers.persistent_sessions.session_server", "        self._tell(life, Farewell(why))\n", "",
    ),
    "a publisher is answered twice": (
        "statemachines.drivers.persistent_sessions.client_requests",
        "            self._tell_stored(life, PublishStored(asked.n))\n",
        "            for _ in range(2):\n"
        "                self._tell_stored(life, PublishStored(asked.n))\n",
    ),
}  # fmt: skip

SESSION_COMMAND = ("node", "sessions", "--store", "{database}", "--name", "a", "--listen", "{address}")
"""The arguments of a node of sessions that the kit starts."""


class NodeMistakes(NamedTuple):
    """The arguments that start a node, its mistakes (module, piece of its text, what takes its place), and a regular
    expression for what is said of one that was found."""

    arguments: tuple[str, ...]
    mistakes: dict[str, tuple[str, str, str]]
    said: str


NODES = {
    "shared_subscriptions/leader": NodeMistakes(LEADER_COMMAND, LEADER, "by SS-|has ended with exit code"),
    "persistent_sessions/session": NodeMistakes(SESSION_COMMAND, SESSION, "by PS-"),
}
"""By their roles."""


def judge_node(role: str, mistake: str = "", **options: Any) -> Any:
    """The verdict of a node over the wire, with the mistake in it if one is named."""
    node = NODES[role]
    planted = (planted_node.__file__, *node.mistakes[mistake]) if mistake else ("-m", "statemachines")
    run = WireRun(role_of(role), WireOptions(rate=40.0, **options), (sys.executable, *planted, *node.arguments))
    return asyncio.run(run.judge(lambda address: None))
