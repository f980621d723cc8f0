"""Messages between a Borrower and a Leader (source: "Messages/callbacks between the Borrower and the Leader").

Every message carries `borrower`, the id of the borrower it comes from or goes to; all but the first and `Undeclared`
also carry (`epoch`, `registration`).  `epoch` grows with each leader of the group, `registration` with each
registration within an epoch, `grant` with each grant within an epoch.  `progress` is the next offset to read: all
below it is acknowledged.  `finished` tells the final progress of a stream from an ordinary one.

Relay: how a borrower and a leader that do not reach each other talk through a follower (source is silent; D-151).

A follower that is asked for a leader passes the question on, under its own id (`via`).  From then on both ends send
what they say twice: directly, and through that follower.  An answer goes back the way its question came.  So an answer
to a ping that comes from the leader itself shows that both directions work, and the borrower stops relaying.

A follower keeps nothing of those it relays for, and passes on only what comes from an end: nothing is
passed on twice.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec

from statemachines.kernel import Message, RemoteProtocolError, TraceColumns, life_of, name_of

END_OF_STREAM: Final = 2**63 - 1
"""A progress greater than all others: the stream has ended and is fully acknowledged."""


Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What a store and a column of a trace can hold; a peer that sends anything else is refused."""


Count = Annotated[int, msgspec.Meta(ge=0, le=2**30)]
"""How often something happened."""


HOLES_MAX: Final = 1_000
"""A stream of a group whose order is relaxed has no more holes than this: beyond it waits."""

Ranges = Annotated[tuple[tuple[Number, Number], ...], msgspec.Meta(max_length=HOLES_MAX)]
"""First and last offsets, in order: what is acknowledged behind a progress, where the group's order is relaxed."""


REASON_MAX: Final = 512
"""Characters of the text with which an application gives a message back."""

Reason = Annotated[str, msgspec.Meta(max_length=REASON_MAX)]
"""Why an application gave a message back, in its own words."""


class Report(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a borrower knows of one stream it holds; `failed`: how often the message at `progress` was handed over, by
    any borrower, and given back or lost; `in_hand`: one that failed is handed over again now, or, of a final
    report, messages behind it were handed over; `acked`: what is acknowledged behind it; `reason`: why it was given
    back last."""

    stream: str
    grant: Number
    progress: Number
    finished: bool
    failed: Count = 0
    in_hand: bool = False
    acked: Ranges = ()
    reason: Reason = ""


OF_EPOCH: Final = TraceColumns(term="epoch")
OF_STREAM: Final = TraceColumns(key="stream", term="epoch")
OF_PROGRESS: Final = TraceColumns(key="stream", term="epoch", first="progress")
"""What traces have of a message."""


# -- borrower -> leader -------------------------------------------------------------------------------------------


class LeaderWanted(Message, frozen=True, gc=False):
    """A borrower looks for the leader of (`group`, `filter`); the source also calls it find_leader."""

    borrower: str
    group: str
    filter: str


class Ping(Message, frozen=True, gc=False):
    """Number `n` keeps the connection alive and repeats the reports that no answered ping has confirmed."""

    columns: ClassVar = OF_EPOCH

    borrower: str
    epoch: Number
    registration: Number
    n: Number
    reports: tuple[Report, ...] = ()


class UpdateProgress(Message, frozen=True, gc=False):
    """The progress of one stream; what follows it as in a `Report`."""

    columns: ClassVar = OF_PROGRESS

    borrower: str
    epoch: Number
    registration: Number
    stream: str
    grant: Number
    progress: Number
    finished: bool
    failed: Count = 0
    in_hand: bool = False
    acked: Ranges = ()
    reason: Reason = ""


class RevokeFinished(Message, frozen=True, gc=False):
    """The borrower has deleted all that it kept of this grant."""

    columns: ClassVar = OF_STREAM

    borrower: str
    epoch: Number
    registration: Number
    stream: str
    grant: Number


class Disconnect(Message, frozen=True, gc=False):
    """The borrower is gone; its last word on each stream it held."""

    columns: ClassVar = OF_EPOCH

    borrower: str
    epoch: Number
    registration: Number
    reports: tuple[Report, ...] = ()


# -- leader -> borrower -------------------------------------------------------------------------------------------


class LeaderConnectResponse(Message, frozen=True, gc=False):
    """`leader` answers a leader_wanted with the registration it made."""

    columns: ClassVar = OF_EPOCH

    borrower: str
    leader: str
    epoch: Number
    registration: Number


class Undeclared(Message, frozen=True, gc=False):
    """The group is not declared: nobody leads it."""

    borrower: str


class PingResponse(Message, frozen=True, gc=False):
    """Ping `n` arrived, and so did its reports."""

    columns: ClassVar = OF_EPOCH

    borrower: str
    epoch: Number
    registration: Number
    n: Number


class Grant(Message, frozen=True, gc=False):
    """Read `stream` from `progress`.  `failed`: how often the message there was handed over and not acknowledged;
    `most`: after so many times it is handed over no more (0: it always is); `relaxed`: a message that is given back
    does not keep back those behind it; `acked`: what is acknowledged behind the progress; `repeats`: messages below it
    may have been handed over under earlier grants (2^63 - 1: all that is stored by now)."""

    columns: ClassVar = OF_PROGRESS

    borrower: str
    epoch: Number
    registration: Number
    stream: str
    grant: Number
    progress: Number
    failed: Count = 0
    most: Count = 0
    relaxed: bool = False
    acked: Ranges = ()
    repeats: Number = 0


class Revoke(Message, frozen=True, gc=False):
    """Finish what is in hand of this grant and report the final progress."""

    columns: ClassVar = OF_STREAM

    borrower: str
    epoch: Number
    registration: Number
    stream: str
    grant: Number


class Revoked(Message, frozen=True, gc=False):
    """The final progress has arrived: forget this grant."""

    columns: ClassVar = OF_STREAM

    borrower: str
    epoch: Number
    registration: Number
    stream: str
    grant: Number


class Invalidate(Message, frozen=True, gc=False):
    """The leader does not know this borrower (any more)."""

    columns: ClassVar = OF_EPOCH

    borrower: str
    epoch: Number
    registration: Number


BorrowerMessage = LeaderWanted | Ping | UpdateProgress | RevokeFinished | Disconnect
"""What a borrower says."""

LeaderMessage = LeaderConnectResponse | Undeclared | PingResponse | Grant | Revoke | Revoked | Invalidate
"""What a leader says."""


# -- past a path that does not work --------------------------------------------------------------------------------


class RelayedToLeader(Message, frozen=True, gc=False):
    """A borrower's `message` for `leader`, on its way through the follower `via`."""

    leader: str
    via: str
    message: BorrowerMessage

    @property
    def borrower(self) -> str:
        """Who says it."""
        return self.message.borrower


class RelayedToBorrower(Message, frozen=True, gc=False):
    """A `message` of `leader` (of its host, where that leader is gone) for a borrower, through the follower `via`."""

    leader: str
    via: str
    message: LeaderMessage

    @property
    def borrower(self) -> str:
        """Whom it is for."""
        return self.message.borrower


Relayed = RelayedToLeader | RelayedToBorrower
"""What a follower passes on."""

ToLeaderHost = BorrowerMessage | Relayed
"""What a leader host takes."""

ToConsumer = LeaderMessage | RelayedToBorrower
"""What a consumer host takes."""


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
