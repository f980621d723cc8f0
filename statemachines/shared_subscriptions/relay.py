"""Relay: how a borrower and a leader that do not reach each other talk through a follower (source is silent; D-151).

A follower that is asked for a leader passes the question on, under its own id (`via`).  From then on both ends send
what they say twice: directly, and through that follower.  An answer goes back the way its question came.  So an answer
to a ping that comes from the leader itself shows that both directions work, and the borrower stops relaying.

A follower keeps nothing of those it relays for, and passes on only what comes from an end: nothing is
passed on twice.
"""

from __future__ import annotations

from typing import Final

from statemachines.kernel import Message, RemoteProtocolError, life_of, name_of
from statemachines.shared_subscriptions.message import (
    BorrowerMessage,
    LeaderConnectResponse,
    PingResponse,
    RelayedToBorrower,
    RelayedToLeader,
)

DETOURS_MAX: Final = 10_000
"""A host remembers a way around for no more borrowers than this; of more, those used last."""

ANSWERS: Final = (LeaderConnectResponse, PingResponse)
"""These go back the way their question came; everything else goes both ways."""


def check_sender(sender: str, to: str, message: Message, is_leader_host: bool) -> None:
    """A borrower speaks for itself, a leader host for itself and for those it relays for; raises `RemoteProtocolError`
    for anybody else.  Whose party the sender is the transport knows, and nothing of messages."""
    match message:
        case RelayedToLeader(leader, via, inner) if is_leader_host:
            wrong = "" if life_of(via) == life_of(sender) and to == leader else f"it is relayed by another, {via}"
        case RelayedToLeader(leader, via, inner):
            wrong = "" if to == via != leader else f"only a leader host says {via} relayed it"
            wrong = wrong or speaks_for_another(sender, inner)
        case RelayedToBorrower(leader, via, _):
            is_hop = is_leader_host and life_of(leader) == life_of(sender) and to == via
            wrong = "" if is_hop else f"it is said for {leader} by another"
        case _:
            wrong = speaks_for_another(sender, message)  # type: ignore[arg-type]
    if wrong:
        raise RemoteProtocolError("registry", "-", name_of(type(message)), "SS-262", wrong)


def check_relay(sender: str, message: Message, is_leader_host: bool) -> None:
    """To a consumer nobody but a leader host relays what a leader says, and under its own id; raises
    `RemoteProtocolError` for anybody else."""
    if isinstance(message, RelayedToBorrower) and not (is_leader_host and message.via == sender):
        why = f"it is said for {message.leader} by no leader host"
        raise RemoteProtocolError("agent", "-", name_of(type(message)), "SS-277", why)


def speaks_for_another(sender: str, message: BorrowerMessage) -> str:
    """What is wrong with it ("": nothing)."""
    return "" if message.borrower == sender else f"it is about another borrower, {message.borrower}"
