"""Stray messages: what is meant for nobody changes nothing, in whatever state it arrives.

A store may answer a request that was given up, and a timer that was taken back may stand in a queue already.  Neither
needs a system of its own: every state that a machine reaches anywhere is asked what it would make of each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from statemachines.kernel import Event, Fsm, LocalProtocolError, in_order
from statemachines.shared_subscriptions.assignment import GrantTimeout, ResendTimer, RevokeTimeout
from statemachines.shared_subscriptions.group import GROUP, GroupRecord
from statemachines.shared_subscriptions.group_store import Committed, ReadDone, Refused, Scanned, StoreFailed
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.member import ExpiryTimer, HandOverTimer
from statemachines.shared_subscriptions.session import SESSION, Ack
from statemachines.shared_subscriptions.stream_store import Fetched, FetchFailed, Measured, StreamsListed
from statemachines_spec.explorer.property import Always, View

NOBODY: Final = "nobody"
NEVER: Final = -1
"""The number of a request that was never made."""

GROUP_ANSWERS: Final = (
    ReadDone(NEVER, (None, None), 0),
    Scanned(NEVER, (), more=False),
    Scanned(NEVER, (), more=True),
    Committed(NEVER, 1),
    Refused(NEVER, ""),
    StoreFailed(NEVER),
)
STREAM_ANSWERS: Final = (
    StreamsListed(NEVER, (), more=False),
    StreamsListed(NEVER, (), more=True),
    Measured(NEVER, ()),
    FetchFailed(NEVER),
)
FIRINGS: Final = tuple(
    timer(NOBODY) for timer in (ExpiryTimer, HandOverTimer, ResendTimer, GrantTimeout, RevokeTimeout)
)
"""Of members and assignments that are gone."""


def of_leaders(hosts: Iterable[str]) -> tuple[Always, ...]:
    """S3: no leader goes by an answer that it does not wait for, or by a timer of somebody who is gone."""
    hosts = tuple(hosts)
    return (
        _unmoved("S3 stray answers", "an answer to no request changes nothing", hosts, LEADER,
                 (*GROUP_ANSWERS, *STREAM_ANSWERS)),
        _unmoved("S11 stray firings", "the timer of who is gone changes nothing", hosts, LEADER, FIRINGS),
    )  # fmt: skip


def of_groups(nodes: Iterable[str]) -> tuple[Always, ...]:
    """S18: no node that declares or destroys a group goes by an answer that it does not wait for."""
    return (_unmoved("S18 stray answers", "an answer to no request changes nothing", nodes, GROUP, GROUP_ANSWERS),)


def of_session(name: str) -> tuple[Always, ...]:
    """S19: a session goes by no answer but that to its open fetch, and refuses to count what it never handed over."""
    return (
        _unmoved("S19 stray answers", "an answer to no fetch changes nothing", (name,), SESSION,
                 (Fetched(NEVER, ()), FetchFailed(NEVER))),
        Always("S19 undelivered", "an acknowledgement of what was not handed over is refused",
               (View(name, 2, _refuses_undelivered),), bool),
    )  # fmt: skip


def _unmoved(name: str, text: str, places: Iterable[str], fsm: Fsm[Any], events: tuple[Event, ...]) -> Always:
    views = tuple(View(place, 2, _is_unmoved(fsm, events)) for place in places)
    return Always(name, text, views, lambda *each: all(each))


def _is_unmoved(fsm: Fsm[Any], events: tuple[Event, ...]) -> Callable[[Any], int]:
    def view(local: Any) -> int:
        record = _record(local)
        if record is None or record.status in fsm.final or (isinstance(record, GroupRecord) and not record.n):
            return 1
        return int(all(_changes_nothing(fsm, record, event) for event in events))

    return view


def _record(local: Any) -> Any:
    party = getattr(local, "party", None)
    return None if party is None else party.record


def _changes_nothing(fsm: Fsm[Any], record: Any, event: Event) -> bool:
    try:
        step = fsm.step(record, event, 0)
    except Exception:  # whatever it raises, it went by it
        return False
    return bool(step.record == record) and step.effects == ()


def _refuses_undelivered(local: Any) -> int:
    record = _record(local)
    if record is None:
        return 1
    return int(all(_is_refused(record, reading) for _, reading in in_order(record.readings)))


def _is_refused(record: Any, reading: Any) -> bool:
    """The next that it would be handed."""
    ack = Ack(reading.owner, reading.stream, reading.grant, reading.delivered, reading.delivered)
    try:
        SESSION.step(record, ack, 0)
    except LocalProtocolError:
        return True
    return False
