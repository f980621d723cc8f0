"""Agreement: what a leader and its borrowers know of each other (S10), what is left of who is gone (S11), timers (L10).

The rules are those of the package of properties; here they are asked of every state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.assignment import GRANTED as GIVEN
from statemachines.shared_subscriptions.assignment import GRANTING, AssignmentStatus
from statemachines.shared_subscriptions.leader_record import SERVING, LeaderRecord
from statemachines.shared_subscriptions.member import LAPSED, REGISTERED
from statemachines.shared_subscriptions.message import END_OF_STREAM, LeaderWanted, Ping, RevokeFinished, UpdateProgress
from statemachines.shared_subscriptions.properties.agreement import (
    HELD,
    BorrowerSide,
    fits,
    is_confirmed,
    read_borrower,
)
from statemachines.shared_subscriptions.properties.timers_needed import (
    check_timers,
    is_registered,
    keeps_until_deadlines,
)
from statemachines.shared_subscriptions.stream import ABSENT
from statemachines_spec.explorer.property import Always, Sometimes, Stepwise, View
from statemachines_spec.shared_subscriptions.consumer import Consumer, ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost, LeaderHostLocal

# -- S10 ------------------------------------------------------------------------------------------------------------

STATUSES = tuple(AssignmentStatus)


class Scale(NamedTuple):
    """The bounds of what the two sides number: a view packs these numbers into one."""

    epochs: int
    registrations: int
    grants: int
    offsets: int

    def link(self, epoch: int, registration: int) -> int:
        """The pair as one number; of a pair that no leader ever has, and only a liar says, the last."""
        epoch, registration = min(epoch, self.epochs), min(registration, self.registrations)
        return (epoch - 1) * self.registrations + registration - 1

    @property
    def links(self) -> int:
        """How many there are."""
        return self.epochs * self.registrations

    def progress(self, progress: int) -> int:
        """The end of a stream comes after every offset."""
        return self.offsets + 1 if progress == END_OF_STREAM else progress


def agreement(consumers: Iterable[Consumer], hosts: Iterable[LeaderHost], streams: tuple[str, ...]) -> list[Always]:
    """S10, for every borrower, leader and stream: how it stands, and how far it has been read."""
    hosts = tuple(hosts)
    made = []
    for one in consumers:
        for host in hosts:
            scale = Scale(host.epochs, host.registrations, host.grants, one.offsets)
            for stream in streams:
                what = " ".join((one.name, *([host.name] if len(hosts) > 1 else []), stream))
                made.append(_standing(one.name, host.name, stream, scale, f"S10 {what}"))
                made.append(_progress(one.name, host.name, stream, scale, f"S10 progress {what}"))
    return made


def make_agreement(consumers: Iterable[Consumer], hosts: Iterable[LeaderHost], streams: tuple[str, ...]) -> Sometimes:
    """Against an empty S10: with nothing in flight, the first consumer has what the first leader has given it."""
    one, host = next(iter(consumers)), next(iter(hosts))
    scale = Scale(host.epochs, host.registrations, host.grants, one.offsets)
    views, read = _views(one.name, host.name, streams[0], scale)

    def happens(borrower: int, leader: int) -> bool:
        ours, theirs = read(borrower, leader)
        return (
            ours is not None
            and theirs is not None
            and (theirs.status, ours.side.kind) == (GIVEN, HELD)
            and (theirs.link, theirs.grant) == (ours.link, ours.side.grant)
        )

    return Sometimes("S10 at rest", "nothing is in flight, and a stream is granted on both sides", views, happens, True)


class Ours(NamedTuple):
    """What the borrower knows of a stream, and under which link."""

    link: int
    side: BorrowerSide


class Theirs(NamedTuple):
    """What the leader knows of it: whom it counts as registered (bits, by link), the assignment."""

    registered: int
    link: int
    status: AssignmentStatus
    grant: int


Read = Callable[[int, int], tuple[Ours | None, Theirs | None]]


def _standing(consumer: str, host: str, stream: str, scale: Scale, name: str) -> Always:
    views, read = _views(consumer, host, stream, scale)

    def holds(borrower: int, leader: int) -> bool:
        ours, theirs = read(borrower, leader)
        if ours is None or theirs is None or not theirs.registered >> ours.link & 1:
            return True
        return fits(ours.side, theirs.link == ours.link, theirs.status, theirs.grant)

    return Always(name, "leader and borrower agree about the stream, up to what is repeated", views, holds, True)


def _views(consumer: str, host: str, stream: str, scale: Scale) -> tuple[tuple[View, View], Read]:
    """The two sides as numbers, and how to read them: 0 = there is nothing to compare."""
    grants, links = scale.grants + 1, scale.links

    def borrower(local: ConsumerLocal) -> int:
        if local.party is None or local.party.record.link is None:
            return 0
        record = local.party.record
        side = read_borrower(record, stream)
        link = scale.link(record.link.epoch, record.link.registration)
        return 1 + (link * 4 + side.kind) * grants + side.grant

    def leader(local: LeaderHostLocal) -> int:
        record = _serving(local)
        if record is None:
            return 0
        one = record.assignments.get(stream)
        owner, status, grant = 0, STATUSES[0], 0
        if one is not None:
            owner, status, grant = one.link.registration - 1, one.status, one.grant
        registered = sum(
            1 << member.link.registration - 1 for _, member in in_order(record.members) if member.status is REGISTERED
        )
        who = ((record.epoch - 1 << scale.registrations) + registered) * scale.registrations + owner
        return 1 + (who * len(STATUSES) + STATUSES.index(status)) * grants + grant

    def read(first: int, second: int) -> tuple[Ours | None, Theirs | None]:
        if not first or not second:
            return None, None
        rest, grant = divmod(first - 1, grants)
        link, kind = divmod(rest, 4)
        ours = Ours(link, BorrowerSide(kind, grant))
        rest, grant = divmod(second - 1, grants)
        rest, status = divmod(rest, len(STATUSES))
        rest, owner = divmod(rest, scale.registrations)
        epoch, registered = divmod(rest, 1 << scale.registrations)
        first_link = epoch * scale.registrations
        return ours, Theirs(registered << first_link, first_link + owner, STATUSES[status], grant)

    sizes = 1 + links * 4 * grants, 1 + links * (1 << scale.registrations) * len(STATUSES) * grants
    return (View(consumer, sizes[0], borrower), View(host, sizes[1], leader)), read


def _progress(consumer: str, host: str, stream: str, scale: Scale, name: str) -> Always:
    """A report that is still to be made, or was not confirmed, is the only difference."""
    grants, offsets = scale.grants + 1, scale.offsets + 2

    def borrower(local: ConsumerLocal) -> int:
        if local.party is None or local.party.record.link is None:
            return 0
        record = local.party.record
        child = record.streams.get(stream)
        if child is None or child.status is ABSENT:
            return 0
        if not is_confirmed(record, stream):
            return 0
        link = scale.link(record.link.epoch, record.link.registration)
        return int(1 + (link * grants + child.grant) * offsets + scale.progress(child.progress))

    def leader(local: LeaderHostLocal) -> int:
        record = _serving(local)
        one = None if record is None else record.assignments.get(stream)
        if one is None or one.status is GRANTING:
            return 0
        link = scale.link(one.link.epoch, one.link.registration)
        return 1 + (link * grants + one.grant) * offsets + scale.progress(one.progress)

    def holds(ours: int, theirs: int) -> bool:
        if not ours or not theirs or (ours - 1) // offsets != (theirs - 1) // offsets:
            return True
        return ours == theirs

    size = 1 + scale.links * grants * offsets
    text = "a borrower with nothing to report and its leader know the same progress"
    return Always(name, text, (View(consumer, size, borrower), View(host, size, leader)), holds, True)


def _serving(local: LeaderHostLocal) -> LeaderRecord | None:
    record = None if local.party is None else local.party.record
    return record if record is not None and record.status in SERVING else None


# -- S11 ------------------------------------------------------------------------------------------------------------


def deadlines(hosts: Iterable[str]) -> Always:
    """S11, and the safe half of L9: whom the leader keeps, it keeps until a deadline that is set."""
    views = tuple(View(host, 2, _keeps_until) for host in hosts)
    text = (
        "a registered borrower has its expiry, a lapsed one the end of its lease, and nobody else is assigned anything"
    )
    return Always("S11 deadlines", text, views, lambda *each: all(each))


def _keeps_until(local: LeaderHostLocal) -> int:
    return int(local.party is None or keeps_until_deadlines(local.party.record, set(local.party.timers)))


def let_go(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S11: what comes of a borrower that was let go changes nothing, but for its last word (a disconnect)."""
    if not isinstance(before, LeaderHostLocal) or before.party is None or after.party is None:
        return True
    record = before.party.record
    if record.status not in SERVING:
        return True
    if isinstance(event, LeaderWanted):
        member = record.members.get(event.borrower)
        over = member is not None and member.status is LAPSED
    else:
        over = isinstance(event, Ping | UpdateProgress | RevokeFinished) and not is_registered(record, event)
    return not over or bool(after.party.record == record)


LET_GO = Stepwise("S11", "what comes of a borrower that was let go changes nothing but by its last word", let_go)

# -- L10 ------------------------------------------------------------------------------------------------------------


def timers_bounded(consumers: Iterable[str], hosts: Iterable[str]) -> Always:
    """L10: a timer for each member, and for each assignment that waits for an answer; none for what is granted."""
    views = tuple(View(name, 2, of) for names, of in ((consumers, _few), (hosts, _needed)) for name in names)
    text = "besides a fixed few, a timer for each member and for each assignment that waits, and no other"
    return Always("L10", text, views, lambda *each: all(each))


def make_other_timer(hosts: Iterable[str]) -> Sometimes:
    """Against an empty L10: some stream is granted, another timer of the same leader is set."""
    host = next(iter(hosts))

    def view(local: LeaderHostLocal) -> int:
        record = _serving(local)
        given = record is not None and any(one.status is GIVEN for _, one in in_order(record.assignments))
        return int(given and local.party is not None and bool(local.party.timers))

    return Sometimes("L10 at work", "a stream is granted, and timers are set", (View(host, 2, view),), bool)


def _few(local: ConsumerLocal) -> int:
    return int(local.party is None or not check_timers("borrower", local.party.record, local.party.timers))


def _needed(local: LeaderHostLocal) -> int:
    return int(local.party is None or not check_timers("leader", local.party.record, local.party.timers))


__all__ = ["LET_GO", "agreement", "deadlines", "make_agreement", "make_other_timer", "timers_bounded"]
