"""Agreement: what a leader and its borrowers know of each other (S10), what is left of who is gone (S11), timers (L10).

The rules are those of the package of properties; here they are asked of every state.

Answers: no grant is waited for without an end (L11).

Due timeouts: when the timeouts of shared subscriptions are no faults: once faults have stopped, these fire, and no
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.assignment import GRANTED as GIVEN
from statemachines.shared_subscriptions.assignment import (
    GRANTING,
    REVOKING,
    AssignmentStatus,
    GrantTimeout,
    RevokeTimeout,
)
from statemachines.shared_subscriptions.borrower import PingTimeout
from statemachines.shared_subscriptions.leader_record import SERVING, LeaderRecord
from statemachines.shared_subscriptions.member import LAPSED, REGISTERED, ExpiryTimer
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Grant,
    Invalidate,
    LeaderWanted,
    Ping,
    PingResponse,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.properties.agreement import (
    HELD,
    BorrowerSide,
    fits,
    is_confirmed,
    read_borrower,
)
from statemachines.shared_subscriptions.properties.settled_group import find_ungranted
from statemachines.shared_subscriptions.properties.time_limits import is_within_window
from statemachines.shared_subscriptions.properties.timers_needed import (
    answers_have_deadlines,
    check_timers,
    is_registered,
    keeps_until_deadlines,
)
from statemachines.shared_subscriptions.stream import ABSENT
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.property import Always, Eventually, Sometimes, Stepwise, View
from statemachines_spec.explorer.system import Due
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


# -- over states ----------------------------------------------------------------------------------------------------


def waits_no_longer(hosts: Iterable[str]) -> Always:
    """L11, the half that needs no waiting: a grant without an answer has its deadline."""
    views = tuple(View(host, 2, _has_deadlines) for host in hosts)
    text = "a stream that is being granted has its grant timeout, or an answer that the store is asked about"
    return Always("L11 deadlines", text, views, lambda *each: all(each))


def gives_up(hosts: Iterable[str]) -> Sometimes:
    """Against consumers that always answer: nobody holds a stream any more that was granted."""
    views = tuple(View(host, 2, _has_let_go) for host in hosts)
    return Sometimes("L11 given up", "a leader that has granted a stream waits for nobody's answer", views, any_of)


def within_window(hosts: tuple[str, ...], window: int) -> tuple[Always, Sometimes]:
    """L11: what a member has to answer within a validity is bounded; and streams do wait for that."""
    full = tuple(View(host, 2, partial(_has_room, window)) for host in hosts)
    waits = tuple(View(host, 2, partial(_waits_for_room, window)) for host in hosts)
    text = f"a member has at most {window} unanswered grants, and at most so many streams are taken back from it"
    waiting = "a stream waits, since its member has grants to answer"
    return (
        Always("L11 window", text, full, lambda *each: all(each)),
        Sometimes("L11 waiting", waiting, waits, any_of),
    )


def any_of(*each: int) -> bool:
    """One of them."""
    return any(each)


def _has_deadlines(local: LeaderHostLocal) -> int:
    return int(local.party is None or answers_have_deadlines(local.party.record, set(local.party.timers)))


def _has_room(window: int, local: LeaderHostLocal) -> int:
    """Counted from the assignments, not as the leader counts."""
    record = None if local.party is None else local.party.record
    if record is None:
        return 1
    given = Counter((one.link.borrower, one.status) for _, one in in_order(record.assignments))
    return int(
        all(is_within_window(count, window) for (_, status), count in given.items() if status in (GRANTING, REVOKING))
    )


def _waits_for_room(window: int, local: LeaderHostLocal) -> int:
    record = None if local.party is None else local.party.record
    return int(
        record is not None
        and bool(record.free)
        and any(one.granting == window and one.count < one.share for _, one in in_order(record.members))
    )


def _has_let_go(local: LeaderHostLocal) -> int:
    record = None if local.party is None else local.party.record
    return int(record is not None and record.grant > 0 and bool(record.members) and not record.assignments)


# -- obligations ----------------------------------------------------------------------------------------------------


def make_granting_ends(hosts: Iterable[str]) -> tuple[Eventually, ...]:
    """L11: granting ends, whoever does not answer."""
    return tuple(Eventually(f"L11 {host}", "granting ends", (View(host, 2, _grants),), bool) for host in hosts)


def _grants(local: LeaderHostLocal) -> int:
    record = None if local.party is None else local.party.record
    return int(record is not None and bool(find_ungranted(record)))


def make_due(mutes: tuple[str, ...]) -> Due:
    """A grant timeout is no fault where nobody will ever answer: the grant is to one of `mutes`, or to who is gone."""
    return Due(_about, partial(_list_answering, mutes), _carried)


def _about(actor: str, local: Any, event: Any) -> Hashable | None:
    return local.party.record.assignments[event.key].link.borrower if isinstance(event, GrantTimeout) else None


def _list_answering(mutes: tuple[str, ...], actor: str, local: Any) -> Iterable[Hashable]:
    """A borrower that lives answers, sooner or later, what is said again and again."""
    if actor in mutes or not isinstance(local, ConsumerLocal) or local.party is None:
        return ()
    return (local.party.record.id,)


def _carried(envelope: Envelope) -> Iterable[Hashable]:
    """What a borrower has sent may be the answer; what is sent to one that is gone is answered for it."""
    borrower = getattr(envelope.event, "borrower", None)
    return () if borrower is None or isinstance(envelope.event, Grant) else (borrower,)


ANSWER, LIFE = "answer", "life"


def about(actor: str, local: Any, event: Any) -> Hashable | None:
    """A ping timeout waits for the answer; expiry and revoke timeout are about the life of a borrower."""
    if isinstance(event, PingTimeout):
        return (ANSWER, local.party.record.id)
    if isinstance(event, ExpiryTimer):
        return (LIFE, event.key)
    if isinstance(event, RevokeTimeout):
        return (LIFE, local.party.record.assignments[event.key].link.borrower)
    return None


def list_kept(actor: str, local: Any) -> Iterable[Hashable]:
    """A borrower that lives speaks for itself; an answer that is only to come is a message."""
    if not isinstance(local, ConsumerLocal) or local.party is None:
        return ()
    return ((LIFE, local.party.record.id),)


def list_carried(envelope: Envelope) -> Iterable[Hashable]:
    """Whatever a borrower has sent is heard of it; a ping on its way will be answered, and its answer arrive."""
    message = envelope.event
    borrower = getattr(message, "borrower", None)
    if borrower is None:
        return ()
    subjects: list[Hashable] = [(LIFE, borrower)] if envelope.sender == borrower else []
    if isinstance(message, Ping | PingResponse | Invalidate):
        subjects.append((ANSWER, borrower))
    return subjects


DUE = Due(about, list_kept, list_carried)
