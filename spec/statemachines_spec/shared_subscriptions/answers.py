"""Answers: no grant is waited for without an end (L11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from functools import partial
from typing import Any

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.assignment import GRANTING, REVOKING, GrantTimeout
from statemachines.shared_subscriptions.message import Grant
from statemachines.shared_subscriptions.properties.settled_group import find_ungranted
from statemachines.shared_subscriptions.properties.time_limits import is_within_window
from statemachines.shared_subscriptions.properties.timers_needed import answers_have_deadlines
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.property import Always, Eventually, Sometimes, View
from statemachines_spec.explorer.system import Due
from statemachines_spec.shared_subscriptions.consumer import ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal

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
