"""Agreement: what a leader and its borrowers know of each other (S10), what is left of who is gone (S11), timers (L10).

A leader and a borrower agree about a stream where the leader has nothing to repeat; where it has, the borrower is one
message behind or ahead of it.  Nothing is said of a borrower that the leader has let go: it is told when it speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.assignment import GRANTED as GIVEN
from statemachines.shared_subscriptions.assignment import GRANTING, REVOKED, AssignmentStatus
from statemachines.shared_subscriptions.assignment import REVOKING as TAKING
from statemachines.shared_subscriptions.borrower import UNSUBSCRIBING
from statemachines.shared_subscriptions.leader_record import SERVING, LeaderRecord
from statemachines.shared_subscriptions.member import LAPSED, REGISTERED
from statemachines.shared_subscriptions.message import END_OF_STREAM, LeaderWanted, Ping, RevokeFinished, UpdateProgress
from statemachines.shared_subscriptions.stream import ABSENT, GRANTED
from statemachines_spec.explorer.property import Always, Sometimes, Stepwise, View
from statemachines_spec.shared_subscriptions.consumer import Consumer, ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import HostLocal, LeaderHost

# -- S10 ------------------------------------------------------------------------------------------------------------

NOT_HELD, HELD, REVOKED_HELD, LEAVING = range(4)
"""What a borrower makes of a stream; `LEAVING`: it finishes the stream since it unsubscribes."""

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
            and (theirs.status, ours.kind) == (GIVEN, HELD)
            and (theirs.link, theirs.grant) == (ours.link, ours.grant)
        )

    return Sometimes("S10 at rest", "nothing is in flight, and a stream is granted on both sides", views, happens, True)


class Ours(NamedTuple):
    """What the borrower knows of a stream: under which link, what it does with it, the grant held or seen."""

    link: int
    kind: int
    grant: int


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
        if theirs.link != ours.link or theirs.status is STATUSES[0]:
            return ours.kind == NOT_HELD
        return _fits(ours, theirs)

    return Always(name, "leader and borrower agree about the stream, up to what is repeated", views, holds, True)


def _fits(ours: Ours, theirs: Theirs) -> bool:
    """Whether both can be where they are about one assignment, each having said what it had to say."""
    if ours.kind == NOT_HELD:
        if theirs.status is GRANTING:
            return ours.grant < theirs.grant
        return theirs.status is REVOKED and ours.grant <= theirs.grant  # lower: it has vanished before it was granted
    kinds = {GRANTING: (HELD, LEAVING), GIVEN: (HELD, LEAVING)}.get(theirs.status, (HELD, REVOKED_HELD, LEAVING))
    return ours.grant == theirs.grant and ours.kind in kinds


def _views(consumer: str, host: str, stream: str, scale: Scale) -> tuple[tuple[View, View], Read]:
    """The two sides as numbers, and how to read them: 0 = there is nothing to compare."""
    grants, links = scale.grants + 1, scale.links

    def borrower(local: ConsumerLocal) -> int:
        if local.party is None or local.party.record.link is None:
            return 0
        record = local.party.record
        child = record.streams.get(stream)
        kind = NOT_HELD
        if child is not None and child.status is not ABSENT:
            kind = HELD if child.status is GRANTED else LEAVING if record.status is UNSUBSCRIBING else REVOKED_HELD
        link = scale.link(record.link.epoch, record.link.registration)
        return 1 + (link * 4 + kind) * grants + (0 if child is None else child.grant)

    def leader(local: HostLocal) -> int:
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
        ours = Ours(*divmod(rest, 4), grant)
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
        if any(stream in unconfirmed for unconfirmed in (record.changed, record.carried, record.late)):
            return 0
        link = scale.link(record.link.epoch, record.link.registration)
        return int(1 + (link * grants + child.grant) * offsets + scale.progress(child.progress))

    def leader(local: HostLocal) -> int:
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


def _serving(local: HostLocal) -> LeaderRecord | None:
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


def _keeps_until(local: HostLocal) -> int:
    record = _serving(local)
    if record is None:
        return 1
    assert local.party is not None
    timers = set(local.party.timers)
    kept = all(
        (("expiry" if member.status is REGISTERED else "hand_over"), borrower) in timers
        for borrower, member in in_order(record.members)
    )
    return int(kept and all(_is_registered(record, one) for _, one in in_order(record.assignments)))


def _is_registered(record: LeaderRecord, one: Any) -> bool:
    """`one` names a borrower and its numbers, and is it registered under these?"""
    member = record.members.get(one.borrower if hasattr(one, "borrower") else one.link.borrower)
    if member is None or member.status is not REGISTERED:
        return False
    link = one if hasattr(one, "registration") else one.link
    return (member.link.epoch, member.link.registration) == (link.epoch, link.registration)


def let_go(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S11: what comes of a borrower that was let go changes nothing, but for its last word (a disconnect)."""
    if not isinstance(before, HostLocal) or before.party is None or after.party is None:
        return True
    record = before.party.record
    if record.status not in SERVING:
        return True
    if isinstance(event, LeaderWanted):
        member = record.members.get(event.borrower)
        over = member is not None and member.status is LAPSED
    else:
        over = isinstance(event, Ping | UpdateProgress | RevokeFinished) and not _is_registered(record, event)
    return not over or bool(after.party.record == record)


LET_GO = Stepwise("S11", "what comes of a borrower that was let go changes nothing but by its last word", let_go)

# -- L10 ------------------------------------------------------------------------------------------------------------

OF_BORROWER = frozenset({"find_leader", "ping_timeout", "ping", "lease", "unsubscribe"})
OF_LEADER = frozenset({"retry", "claim_end", "heartbeat", "grace", "renew", "commit", "recheck", "measure", "idle"})
MEMBERS = {REGISTERED: "expiry", LAPSED: "hand_over"}
ASSIGNMENTS = {
    "resend": (GRANTING, TAKING, REVOKED),
    "grant_timeout": (GRANTING,),
    "revoke_timeout": (TAKING, REVOKED),
}


def timers_bounded(consumers: Iterable[str], hosts: Iterable[str]) -> Always:
    """L10: a timer for each member, and for each assignment that waits for an answer; none for what is granted."""
    views = tuple(View(name, 2, of) for names, of in ((consumers, _few), (hosts, _needed)) for name in names)
    text = "besides a fixed few, a timer for each member and for each assignment that waits, and no other"
    return Always("L10", text, views, lambda *each: all(each))


def make_other_timer(hosts: Iterable[str]) -> Sometimes:
    """Against an empty L10: some stream is granted, another timer of the same leader is set."""
    host = next(iter(hosts))

    def view(local: HostLocal) -> int:
        record = _serving(local)
        given = record is not None and any(one.status is GIVEN for _, one in in_order(record.assignments))
        return int(given and local.party is not None and bool(local.party.timers))

    return Sometimes("L10 at work", "a stream is granted, and timers are set", (View(host, 2, view),), bool)


def _few(local: ConsumerLocal) -> int:
    return int(local.party is None or all(name in OF_BORROWER and not key for name, key in local.party.timers))


def _needed(local: HostLocal) -> int:
    if local.party is None:
        return 1
    record = local.party.record
    return int(all(_is_needed(record, name, key) for name, key in local.party.timers))


def _is_needed(record: LeaderRecord, name: str, key: str) -> bool:
    if name in MEMBERS.values():
        member = record.members.get(key)
        return member is not None and MEMBERS.get(member.status) == name
    if name in ASSIGNMENTS:
        assignment = record.assignments.get(key)
        return assignment is not None and assignment.status in ASSIGNMENTS[name]
    return name in OF_LEADER and not key


__all__ = ["LET_GO", "agreement", "deadlines", "make_agreement", "make_other_timer", "timers_bounded"]
