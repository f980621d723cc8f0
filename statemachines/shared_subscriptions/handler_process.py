"""A session that reads and delivers, as a declared process: its subscriptions, shared and private, and one `Session`
(source: "Session Shared Subscription Handler").

What a subscription's machine tells goes to the session; the progress that the session reports goes to the machine that
it was read for.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import (
    PROCESS,
    STAY,
    Begin,
    ConfigurationError,
    Effects,
    EventRoute,
    Feed,
    Fsm,
    PartyKind,
    Process,
    Row,
    Tell,
    fresh,
)
from statemachines.shared_subscriptions.agent_process import (
    BORROWERS,
    DECLARERS,
    ENDING,
    ROUTES,
    ROWS,
    WITNESSES,
    borrow_first,
    borrow_next,
    end,
    follow,
    goes_on,
    is_diverted,
    is_full,
    refuse_more,
)
from statemachines.shared_subscriptions.borrower import Destroyed, GiveBack, LeaseBegan, LeaseEnded, Start
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.listing import STANDBY, DeliveriesRevoked, Resume, StandbyRecord
from statemachines.shared_subscriptions.private_subscription import (
    OPEN,
    PRIVATE,
    SUBSCRIPTIONS_MAX,
    AgentRecord,
    AgentStatus,
    GroupReady,
    Private,
    PrivateRecord,
    ServedSubscription,
    SubscribeAlone,
)
from statemachines.shared_subscriptions.session import (
    SESSION,
    AcknowledgementLate,
    Admit,
    ApplicationReturned,
    Dismiss,
    Progressed,
    ReadsFailed,
    ReadsSucceed,
    SessionRecord,
)
from statemachines.shared_subscriptions.stream import Finish, Install, StreamProgress, Uninstall
from statemachines.shared_subscriptions.stream_store import check_filter

TO_SESSION = (Install, Finish, Uninstall, LeaseBegan, LeaseEnded)

SESSIONS = PartyKind("session", SESSION, most=1, number=0)
PRIVATES = PartyKind("private", PRIVATE, most=SUBSCRIPTIONS_MAX)
STANDBYS = PartyKind("standby", STANDBY, most=SUBSCRIPTIONS_MAX + ENDING)


def begin_session(record: AgentRecord) -> Effects:
    """The one that reads and delivers for all."""
    times = record.configuration
    patience_ns, retry_ns = times.validity_ms * MS, times.find_leader_ms * MS
    session = SESSIONS.id_of(record.id)
    wait_ns = times.ack_wait_ms * MS
    kept = SessionRecord(session, buffer=record.buffer, patience_ns=patience_ns, retry_ns=retry_ns, ack_wait_ns=wait_ns)
    return (Begin(session, SESSIONS.name, kept),)


# -- guards ---------------------------------------------------------------------------------------------------------


def is_malformed(record: AgentRecord, event: SubscribeAlone) -> bool:
    try:
        check_wanted(event.wanted)
    except ConfigurationError:
        return True
    return False


def check_wanted(wanted: Private) -> None:
    """Raises `ConfigurationError` for a malformed filter or progress."""
    if wanted.filter or not wanted.progress:
        check_filter(wanted.filter, wanted.filter)
    if any(at < 0 for at in wanted.progress.values()):
        raise ConfigurationError("progress", dict(wanted.progress), "must be offsets of streams, none below 0")


def is_away(record: AgentRecord, event: GroupReady) -> bool:
    return record.is_away


def is_followed_by_standby(record: AgentRecord, event: Destroyed) -> bool:
    return event.recreate and record.is_away


def is_late_too(record: AgentRecord, event: ReadsSucceed) -> bool:
    return record.late != ""


def is_unreadable_too(record: AgentRecord, event: ApplicationReturned) -> bool:
    return record.unread != ""


# -- actions --------------------------------------------------------------------------------------------------------


def refuse_malformed(record: AgentRecord, event: SubscribeAlone, now_ns: int) -> tuple[AgentRecord, Effects]:
    check_wanted(event.wanted)
    return record, ()


def read_alone(record: AgentRecord, event: SubscribeAlone, now_ns: int) -> tuple[AgentRecord, Effects]:
    wanted, number = event.wanted, record.number + 1
    party = fresh(record.id, number)
    renew_ns = record.configuration.renew_streams_ms * MS
    private = PrivateRecord(party, wanted.filter, wanted.start_ns, renew_ns, progress=wanted.progress)
    known = ServedSubscription(number, "", wanted.filter, wanted.at_delivery, party, PRIVATES.name, 0)
    record = replace(record, number=number, subscriptions=record.subscriptions.set(party, known))
    admit = Feed(SESSIONS.id_of(record.id), Admit(party, True, wanted.at_delivery))
    began = (Begin(party, PRIVATES.name, private), admit, Feed(party, Start()))
    return record.serve(party, party, PRIVATES.name), began


def admit_first(record: AgentRecord, event: GroupReady, now_ns: int) -> tuple[AgentRecord, Effects]:
    subscription = record.parties[event.party]
    record, effects = borrow_first(record, event, now_ns)
    return record, (*effects[:-1], make_admission(record, subscription), effects[-1])


def stand_by_first(record: AgentRecord, event: GroupReady, now_ns: int) -> tuple[AgentRecord, Effects]:
    subscription = record.parties[event.party]
    return stand_by(record, subscription, subscription, 0)


def follow_borrower(record: AgentRecord, event: Destroyed, now_ns: int) -> tuple[AgentRecord, Effects]:
    subscription = record.parties[event.borrower]
    record, effects = borrow_next(record, event, now_ns)
    gone = Feed(SESSIONS.id_of(record.id), Dismiss(event.borrower))
    return record, (gone, *effects[:-1], make_admission(record, subscription), effects[-1])


def stand_by_next(record: AgentRecord, event: Destroyed, now_ns: int) -> tuple[AgentRecord, Effects]:
    subscription = record.parties[event.borrower]
    record, party = follow(record, event)
    record, effects = stand_by(record, subscription, party, event.epoch)
    return record, (Feed(SESSIONS.id_of(record.id), Dismiss(event.borrower)), *effects)


def stand_by(record: AgentRecord, subscription: str, party: str, epoch: int) -> tuple[AgentRecord, Effects]:
    """In the place of a borrower, while the session cannot read, or its application keeps a message for too long."""
    standby = Begin(
        party,
        STANDBYS.name,
        StandbyRecord(party, subscription, record.unread or record.late, epoch, is_late=record.late != ""),
    )
    record = record.serve(subscription, party, STANDBYS.name)
    return record, (standby, make_admission(record, subscription), Feed(party, Start()))


def make_admission(record: AgentRecord, subscription: str) -> Feed:
    """The session admits what serves the subscription now; a borrower needs a lease."""
    known = record.subscriptions[subscription]
    return Feed(SESSIONS.id_of(record.id), Admit(known.party, False, known.at_delivery))


def dismiss_last(record: AgentRecord, event: Destroyed, now_ns: int) -> tuple[AgentRecord, Effects]:
    subscription = record.parties[event.borrower]
    record, effects = end(record, event, now_ns)
    return record, (Feed(SESSIONS.id_of(record.id), Dismiss(event.borrower, subscription)), *effects)


def give_back(record: AgentRecord, event: ReadsFailed, now_ns: int) -> tuple[AgentRecord, Effects]:
    served = record.served_by(BORROWERS.name)
    return replace(record, unread=event.stream), tuple(Feed(one.party, GiveBack()) for one in served)


def give_back_late(record: AgentRecord, event: AcknowledgementLate, now_ns: int) -> tuple[AgentRecord, Effects]:
    served = record.served_by(BORROWERS.name)
    owners = [one.party for one in served]
    revoked = [Tell(DeliveriesRevoked(owner)) for owner in owners]
    return replace(record, late=event.stream), (*revoked, *(Feed(owner, GiveBack()) for owner in owners))


def take_part_again(
    record: AgentRecord, event: ReadsSucceed | ApplicationReturned, now_ns: int
) -> tuple[AgentRecord, Effects]:
    served = record.served_by(STANDBYS.name)
    return replace(record, unread="", late=""), tuple(Feed(one.party, Resume()) for one in served)


def note_reads(record: AgentRecord, event: ReadsSucceed, now_ns: int) -> tuple[AgentRecord, Effects]:
    return replace(record, unread=""), ()


def note_return(record: AgentRecord, event: ApplicationReturned, now_ns: int) -> tuple[AgentRecord, Effects]:
    return replace(record, late=""), ()


def progress_of(session: str, event: Progressed) -> StreamProgress:
    """What the session reports, as its owner takes it."""
    said = (event.progress, event.finished, event.failed, event.in_hand, event.acked, event.reason)
    return StreamProgress(event.stream, event.grant, *said)


# fmt: off
HANDLER_ROWS = (
    #   on              from  to    do                when                    clause
    Row(SubscribeAlone, OPEN, STAY, refuse_malformed, is_malformed,           "SS-190"),
    Row(SubscribeAlone, OPEN, STAY, refuse_more,      is_full,                "SS-174"),
    Row(SubscribeAlone, OPEN, STAY, read_alone,       None,                   "SS-181"),
    Row(GroupReady,       OPEN, STAY, stand_by_first,   is_away,                "SS-293"),
    Row(GroupReady,       OPEN, STAY, admit_first,      None,                   "SS-181"),
    Row(Destroyed,      OPEN, STAY, stand_by_next,    is_followed_by_standby, "SS-293"),
    Row(Destroyed,      OPEN, STAY, follow_borrower,  goes_on,                "SS-173"),
    Row(Destroyed,      OPEN, STAY, dismiss_last,     None,                   "SS-181"),
    Row(ReadsFailed,    OPEN, STAY, give_back,        None,                   "SS-292"),
    Row(ReadsSucceed,   OPEN, STAY, note_reads,       is_late_too,            "SS-294"),
    Row(ReadsSucceed,   OPEN, STAY, take_part_again,  None,                   "SS-294"),
    Row(AcknowledgementLate, OPEN, STAY, give_back_late, None,                "SS-352"),
    Row(ApplicationReturned, OPEN, STAY, note_return, is_unreadable_too,      "SS-353"),
    Row(ApplicationReturned, OPEN, STAY, take_part_again, None,               "SS-353"),
)
# fmt: on

HANDLER_MACHINE = Fsm(
    "handler",
    protocol="shared_subscriptions",
    record=AgentRecord,
    states=AgentStatus,
    initial=OPEN,
    rows=(*ROWS, *HANDLER_ROWS),
)

OWNERS = (BORROWERS.name, PRIVATES.name)
SERVING: Any = (*OWNERS, STANDBYS.name)

HANDLER = Process(
    "handler",
    HANDLER_MACHINE,
    kinds=(SESSIONS, DECLARERS, BORROWERS, WITNESSES, PRIVATES, STANDBYS),
    begin=begin_session,
    diverts=is_diverted,
    routes=(
        *ROUTES,
        EventRoute((Destroyed,), SERVING, PROCESS, "SS-173"),
        EventRoute(TO_SESSION, OWNERS, SESSIONS.name, "SS-180"),
        EventRoute((ReadsFailed,), (SESSIONS.name,), PROCESS, "SS-292"),
        EventRoute((ReadsSucceed,), (SESSIONS.name,), PROCESS, "SS-294"),
        EventRoute((AcknowledgementLate,), (SESSIONS.name,), PROCESS, "SS-352"),
        EventRoute((ApplicationReturned,), (SESSIONS.name,), PROCESS, "SS-353"),
        EventRoute((Progressed,), (SESSIONS.name,), BORROWERS.name, "SS-180", by="owner", change=progress_of,
              as_type=StreamProgress),
    ),
)  # fmt: skip
