"""Words of the steps texts of a leader: what borrowers say to it, and what somebody else writes into its store."""

from __future__ import annotations

from typing import Any

from statemachines.shared_subscriptions.group_store import Commit
from statemachines.shared_subscriptions.message import (
    Disconnect,
    LeaderWanted,
    Ping,
    Report,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.names import record_key


def put(name: str, value: Any) -> Commit:
    """One record of the group."""
    return Commit(0, (), ((record_key("g", "#", name), value),))


def ask_leader(name: str) -> LeaderWanted:
    """A borrower of this process asks for its leader."""
    return LeaderWanted(f"{name}~1/1", "g", "#")


def ping(name: str, registration: int, n: int, *reports: Report) -> Ping:
    """Its ping, in the first epoch."""
    return Ping(f"{name}~1/1", 1, registration, n, reports)


def advance(name: str, registration: int, stream: str, grant: int, at: int, *rest: Any) -> UpdateProgress:
    """How far it has come with a stream."""
    return UpdateProgress(f"{name}~1/1", 1, registration, stream, grant, at, *(rest or (False,)))


def confirm_end(name: str, registration: int, stream: str, grant: int) -> RevokeFinished:
    """It has given the stream back."""
    return RevokeFinished(f"{name}~1/1", 1, registration, stream, grant)


def leave(name: str, registration: int, *reports: Report) -> Disconnect:
    """It goes."""
    return Disconnect(f"{name}~1/1", 1, registration, reports)


def receive(message: Any, sender: str = "leader-1~1/1") -> tuple[str, str, Any]:
    """A message of a leader, or of its host, arrives for its borrower."""
    return sender, message.borrower, message
