"""GrantedStream: what a leader gives to whom.  S2, S4, S8, S9; S13 where a grant begins below what was accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty
from statemachines.shared_subscriptions.assignment import AssignmentRecord
from statemachines.shared_subscriptions.message import END_OF_STREAM, UpdateProgress
from statemachines.shared_subscriptions.properties.known_progress import KnownProgress
from statemachines.shared_subscriptions.stream import StreamLink
from statemachines.shared_subscriptions.stream_store import rank_of


class GrantedStream(msgspec.Struct, frozen=True, gc=False):
    """One stream at one leader: the `grant` under which it is assigned (0: it is not), to whom by which `link`, and
    the progress that was `accepted`."""

    grant: int = 0
    link: StreamLink | None = None
    accepted: int = 0

    def observe_grant(
        self, leader: str, assignment: AssignmentRecord, durable: int
    ) -> tuple[GrantedStream, tuple[BrokenProperty, ...]]:
        """The leader assigns the stream, of which so much was committed."""
        stream, known = assignment.stream, max(self.accepted, durable)
        after = replace(self, grant=assignment.grant, link=assignment.link)
        broken: tuple[BrokenProperty, ...] = ()
        if self.grant:
            detail = f"{leader} assigns {stream} under {assignment.grant} while {self.grant} stands"
            broken = (BrokenProperty("S2", detail),)
        broken += check_grant_of_end(leader, stream, max(known, assignment.progress))
        if assignment.progress < known:
            broken += (BrokenProperty("S13", f"{leader} grants {stream} from {assignment.progress}, below {known}"),)
        return after, broken

    def observe_progress(
        self, leader: str, event: UpdateProgress, kept: int
    ) -> tuple[GrantedStream, tuple[BrokenProperty, ...]]:
        """The leader takes what it is told of the stream, and goes by `kept` from then on."""
        broken = self.check_owner(leader, event)
        if self.accepted == END_OF_STREAM:
            broken += KnownProgress(self.accepted).observe(event.stream, kept, "accepted")[1]
        return self.observe_report(event.progress), broken

    def observe_report(self, progress: int) -> GrantedStream:
        """Its owner has said so, at last or as its last word."""
        return self if progress <= self.accepted else replace(self, accepted=progress)

    def observe_end(self, grant: int) -> GrantedStream:
        """It is not assigned under this grant any more."""
        return replace(self, grant=0, link=None) if grant == self.grant else self

    def check_owner(self, leader: str, event: UpdateProgress) -> tuple[BrokenProperty, ...]:
        """Progress counts only from the current owner of the current grant."""
        link = self.link
        if (
            link is not None
            and event.grant == self.grant
            and (event.borrower, event.epoch, event.registration) == (link.borrower, link.epoch, link.registration)
        ):
            return ()
        detail = f"{leader} takes progress of {event.stream} under {event.grant} from {event.borrower}"
        return (BrokenProperty("S4", detail),)


def check_grant_of_end(leader: str, stream: str, known: int) -> tuple[BrokenProperty, ...]:
    """Nobody is granted a stream that is known to have ended."""
    return (BrokenProperty("S8", f"{leader} grants {stream}, which has ended"),) if known == END_OF_STREAM else ()


def check_generations(
    leader: str, stream: str, earlier: Iterable[str], is_read: Callable[[str], bool]
) -> tuple[BrokenProperty, ...]:
    """Nobody is granted a stream while one of an earlier generation of its shard is there that is not read to its
    end."""
    for other in earlier:
        if not is_read(other):
            return (BrokenProperty("S9", f"{leader} grants {stream} before {other} is read to its end"),)
    return ()


def list_earlier(stream: str, streams: Iterable[str], oldest: int = 0) -> tuple[str, ...]:
    """Those of the same shard and an earlier generation; what is before the `oldest` one is gone."""
    shard, generation = rank_of(stream)
    if generation <= oldest:
        return ()
    ranks = ((other, rank_of(other)) for other in streams)
    return tuple(other for other, rank in ranks if rank[0] == shard and oldest <= rank[1] < generation)
