"""Relay: how a borrower and a leader that do not reach each other talk through a follower (source is silent; D-151).

A follower that is asked for a leader passes the question on, under its own id (`via`).  From then on both ends send
what they say twice: directly, and through that follower.  An answer goes back the way its question came.  So an answer
to a ping that comes from the leader itself shows that both directions work, and the borrower stops relaying.

A follower keeps nothing of those it relays for, and passes on only what comes from an end: nothing is
passed on twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from statemachines.kernel import Event, Host, Message, Outgoing, RemoteProtocolError, Send, life_of, name_of
from statemachines.shared_subscriptions.message import (
    BorrowerMessage,
    LeaderConnectResponse,
    LeaderWanted,
    PingResponse,
    RelayedToBorrower,
    RelayedToLeader,
)

DETOURS_MAX: Final = 10_000
"""A host remembers a way around for no more borrowers than this; of more, those used last."""

FOR_EVER: Final = 2**63 - 1

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


class RelayingHost(Host):
    """Base of the hosts at both ends: what they say to a party that is reached around is said both ways."""

    def __init__(self) -> None:
        super().__init__()
        self._detours: dict[str, tuple[str, int]] = {}
        self._answers_around = False

    def relay_message(self, speaker: str, via: str, effect: Send) -> Send:
        """What `speaker` says, as it goes through the follower `via`."""
        raise NotImplementedError

    def feed(self, party: str, event: Event, now_ns: int) -> list[Outgoing]:
        out = super().feed(party, event, now_ns)
        return self._both_ways(out, now_ns) if self._detours else out

    def fire(self, now_ns: int) -> list[Outgoing]:
        out = super().fire(now_ns)
        return self._both_ways(out, now_ns) if self._detours else out

    def fire_first(self, now_ns: int) -> list[Outgoing]:
        out = super().fire_first(now_ns)
        return self._both_ways(out, now_ns) if self._detours else out

    def keep_detour(self, borrower: str, via: str, until_ns: int = FOR_EVER) -> None:
        """From now on what the borrower says, or is told, goes around, too."""
        self._detours.pop(borrower, None)
        self._detours[borrower] = (via, until_ns)
        if len(self._detours) > DETOURS_MAX:
            del self._detours[next(iter(self._detours))]

    def drop_detour(self, borrower: str) -> None:
        """The direct way works, or nobody is there any more."""
        self._detours.pop(borrower, None)

    def detour(self, borrower: str, now_ns: int) -> str:
        """Through whom it is reached ("": nobody)."""
        via, until_ns = self._detours.get(borrower, ("", 0))
        if via and until_ns <= now_ns:
            del self._detours[borrower]
            return ""
        return via

    def _both_ways(self, out: list[Outgoing], now_ns: int) -> list[Outgoing]:
        """What was doubled already is left alone: `fire` and `feed` begin with `fire_first`."""
        done = {id(effect.message.message) for _, effect in out if _is_relayed(effect)}  # type: ignore[union-attr]
        doubled: list[Outgoing] = []
        for party, effect in out:
            doubled.append((party, effect))
            if type(effect) is not Send or _is_relayed(effect) or id(effect.message) in done:
                continue
            message: Any = effect.message
            via = "" if type(message) is LeaderWanted else self.detour(getattr(message, "borrower", ""), now_ns)
            if not via:
                continue
            if type(message) in ANSWERS:
                if not self._answers_around:
                    continue
                doubled.pop()
            doubled.append((party, self.relay_message(party, via, effect)))
        return doubled

    def _answer_around(self, act: Callable[[], list[Outgoing]]) -> list[Outgoing]:
        """What comes of a question that was relayed: its answer is relayed."""
        self._answers_around = True
        try:
            return act()
        finally:
            self._answers_around = False


def _is_relayed(effect: object) -> bool:
    return type(effect) is Send and type(effect.message) in (RelayedToLeader, RelayedToBorrower)
