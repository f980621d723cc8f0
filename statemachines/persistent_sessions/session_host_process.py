"""One node of sessions as a declared process: a writer for each session that something is published to, and for each
client that is connected a session life and a resume.

    connect            -> SessionLife --SessionOpened--> Resume --Resumed--> SessionLife --Accepted--> application
    publish            -> the Writer of each session --Written, the last of them--> application
    MarkerWanted       -> the Writer of the session, which begins where there is none, and learns who the owner is; of
                          another node when the database says the same (`claims`), as BeginTakeover
    Live, LiveMarker   -> the Resume that it is sent to, if it is of its session
    BeginTakeover, ... -> the same; where there is none, `TakeoverRefused`
    the Resume ends    -> the SessionLife ends; it says how (`SessionClosed`), and both are gone
    the Resume yields  -> the SessionLife ends, superseded; the Resume stays until it has handed over what it has
    and a Collector    -> application: `RoundEnded`, `MessageLost`

A writer is called by the name of its node, an owner by an id of its own, under which live messages come.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import (
    ADDRESSEE,
    OUTSIDE,
    PROCESS,
    STAY,
    Arrived,
    Ask,
    Begin,
    Effect,
    Effects,
    Event,
    EventRoute,
    Feed,
    Forget,
    Fsm,
    Ignore,
    Map,
    PartyKind,
    Process,
    RemoteProtocolError,
    Row,
    Send,
    keys_in_order,
    life_of,
    name_of,
    node_of,
)
from statemachines.persistent_sessions.claims import Claim
from statemachines.persistent_sessions.collector import COLLECTOR
from statemachines.persistent_sessions.collector_record import CollectorRecord
from statemachines.persistent_sessions.delivery_actions import with_receipts
from statemachines.persistent_sessions.life_record import (
    LOCKING,
    Attach,
    Disconnect,
    LifeRecord,
    SessionClosed,
    SessionOpened,
)
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Written
from statemachines.persistent_sessions.owner_request import FindOwner, OwnerFound
from statemachines.persistent_sessions.request import DATABASE, CommitState, NotOwner, StateCommitted
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.resume_record import (
    YIELDING,
    ConnectionLost,
    Discarded,
    Resumed,
    ResumeEnded,
    ResumeRecord,
    ResumeSession,
    Yielded,
)
from statemachines.persistent_sessions.session_host_record import (
    UP,
    CommitAcknowledged,
    CommitOf,
    ConnectClient,
    EndResume,
    FollowerOf,
    ForgetIdle,
    ForgetResume,
    HandOver,
    LeaveClient,
    LookForOwner,
    LoseClient,
    MarkerAsked,
    MeetWriter,
    OpenSession,
    Overtake,
    Owner,
    OwnerClosed,
    OwnerEnded,
    OwnerOpened,
    SessionHostRecord,
    SessionHostStatus,
    TakeAcknowledgements,
    TakeoverAnswered,
    TakeoverAsked,
)
from statemachines.persistent_sessions.session_life import SESSION_LIFE
from statemachines.persistent_sessions.takeover_message import (
    BeginTakeover,
    EndTakeover,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)
from statemachines.persistent_sessions.writer import WRITER
from statemachines.persistent_sessions.writer_flow_record import DONE, LinkLost, WriterDown, WriterFlowRecord, WriterUp
from statemachines.persistent_sessions.writer_record import IDLE, Hand, LiveGone, LiveKnown, Start, WriterRecord

Record = SessionHostRecord
Done = tuple[SessionHostRecord, Effects]

CLIENTS_MAX: Final = 1_000_000
"""Clients that are connected to one node."""
BUSY_WRITERS_MAX: Final = 10_000_000
"""A writer that is busy does not go, so there may be more of them than `writers_max`."""


def record_of(record: Any) -> Any:
    """What a party shows: all of it."""
    return record


LIVES = PartyKind("life", SESSION_LIFE, most=CLIENTS_MAX, suffix="/life", view=record_of)
RESUMES = PartyKind("resume", RESUME, most=CLIENTS_MAX, view=record_of)
WRITERS = PartyKind("writer", WRITER, most=BUSY_WRITERS_MAX, view=record_of)
COLLECTORS = PartyKind("collector", COLLECTOR, most=1, number="collector")

FROM_WRITERS = (Live, LiveMarker)
FROM_NEXT = (BeginTakeover, EndTakeover)
FROM_BEFORE = (TakeoverBegun, TakeoverEnded, TakeoverRefused)

WHY_LIFE_ENDS: Final[dict[str, Event]] = {
    "superseded": NotOwner(),
    "absent": Discarded(),
    "timeout": ConnectionLost(),
}
"""Why a resume has ended -> what its session life makes of it; where the host has ended it, nothing."""


def life_of_owner(owner: str) -> str:
    """The party that is the session life of an owner."""
    return f"{owner}{LIVES.suffix}"


def owner_of(party: str) -> str:
    """The owner whose session life or resume this is."""
    return party.removesuffix(LIVES.suffix)


def is_read_out(flow: WriterFlowRecord) -> bool:
    """The writer was fenced because it was gone, everything of it is read, and nothing was heard of it since."""
    return flow.status is DONE and flow.gone


def begin_collector(record: Record) -> Effects:
    """Unless it is told to collect nothing."""
    if record.graces is None:
        return ()
    return (Begin(COLLECTORS.id_of(record.id), COLLECTORS.name, CollectorRecord(record.graces)),)


# -- clients: guards and actions ------------------------------------------------------------------------------------


def is_known_client(record: Record, event: ConnectClient) -> bool:
    return event.client in record.newest


def waits_for_lock(record: Record, event: Overtake) -> bool:
    return event.seen.status is LOCKING


def begin_life(record: Record, event: ConnectClient, now_ns: int) -> Done:
    record, began, owner = with_life(record, event)
    return record, (began, Feed(life_of_owner(owner), event.connect))


def look_at_earlier(record: Record, event: ConnectClient, now_ns: int) -> Done:
    """Thousands of connections of one client that wait would keep the database from the one that has the lock."""
    earlier = life_of_owner(record.newest[event.client])
    record, began, owner = with_life(record, event)
    return record, (began, Feed(record.id, Overtake(earlier, owner=owner, connect=event.connect)))


def with_life(record: Record, event: ConnectClient) -> tuple[Record, Begin, str]:
    """With the next owner; it receives no more at a time than the node allows."""
    number = record.number + 1
    owner, party = RESUMES.id_of(record.id, number), LIVES.id_of(record.id, number)
    times = replace(record.times, receive_maximum=min(event.receive_maximum, record.times.receive_maximum))
    life = LifeRecord(owner, event.client, record.life_times, most=record.sessions_max)
    owners = record.owners.set(owner, Owner(event.client, times))
    record = replace(record, number=number, owners=owners, newest=record.newest.set(event.client, owner))
    return record, Begin(party, LIVES.name, life), owner


def overtake(record: Record, event: Overtake, now_ns: int) -> Done:
    return record, (Feed(event.party, NotOwner()), *connect(record, event, now_ns)[1])


def connect(record: Record, event: Overtake, now_ns: int) -> Done:
    return record, (Feed(life_of_owner(event.owner), event.connect),)


def is_connected(record: Record, event: LeaveClient | LoseClient) -> bool:
    return event.owner in record.owners


def leave(record: Record, event: LeaveClient, now_ns: int) -> Done:
    """What the client has acknowledged since the last commit does not come again."""
    owner, left = event.owner, Feed(life_of_owner(event.owner), Disconnect(event.expiry_ms))
    return without_acknowledged(record, owner), (*commit_first(record, owner), Feed(owner, ConnectionLost()), left)


def commit_first(record: Record, owner: str) -> Effects:
    """What is committed of this owner is what it has now."""
    return (Feed(record.id, CommitOf(owner)),) if owner in record.resumes else ()


def has_acknowledged(record: Record, event: LoseClient) -> bool:
    return event.owner in record.acknowledged


def lose_and_commit(record: Record, event: LoseClient, now_ns: int) -> Done:
    record, effects = lose(record, event, now_ns)
    return without_acknowledged(record, event.owner), (*commit_first(record, event.owner), *effects)


def lose(record: Record, event: LoseClient, now_ns: int) -> Done:
    lost = ConnectionLost()
    return record, (Feed(event.owner, lost), Feed(life_of_owner(event.owner), lost))


def without_acknowledged(record: Record, owner: str) -> Record:
    """Nothing of this owner waits for a commit."""
    if owner not in record.acknowledged:
        return record
    return replace(record, acknowledged=record.acknowledged.delete(owner))


def has_resume(record: Record, event: TakeAcknowledgements) -> bool:
    return event.owner in record.resumes


def take_acknowledgements(record: Record, event: TakeAcknowledgements, now_ns: int) -> Done:
    owner = event.owner
    if owner not in record.acknowledged:
        record = replace(record, acknowledged=record.acknowledged.set(owner, True))
    return record, tuple(Feed(owner, message) for message in event.messages)


def commit_all(record: Record, event: CommitAcknowledged, now_ns: int) -> Done:
    if not record.acknowledged:
        return record, ()
    owners = [owner for owner in keys_in_order(record.acknowledged) if owner in record.resumes]
    return replace(record, acknowledged=Map()), tuple(Feed(record.id, CommitOf(owner)) for owner in owners)


def has_state(record: Record, event: CommitOf) -> bool:
    return event.seen.delivery is not None


def commit(record: Record, event: CommitOf, now_ns: int) -> Done:
    """The state as it is.  The resume hears of no answer: it has asked before for all of it but what the client has
    acknowledged."""
    resume: ResumeRecord = event.seen
    assert resume.delivery is not None
    return record, (Ask(DATABASE, CommitState(resume.session, resume.token, with_receipts(resume.delivery))),)


# -- the parties of an owner ----------------------------------------------------------------------------------------


def begin_resume(record: Record, event: OwnerOpened, now_ns: int) -> Done:
    owner = record.owners[event.owner]
    resume = ResumeRecord(event.owner, owner.client, event.token, owner.times, event.live)
    record = replace(record, resumes=record.resumes.set(event.owner, OpenSession(event.session, event.token)))
    return record, (Begin(event.owner, RESUMES.name, resume), Feed(event.owner, ResumeSession()))


def is_closed(record: Record, event: OwnerEnded) -> bool:
    return event.owner not in record.owners


def is_end_of_life(record: Record, event: OwnerEnded) -> bool:
    return event.why in WHY_LIFE_ENDS


def end_life(record: Record, event: OwnerEnded, now_ns: int) -> Done:
    return record, (Feed(life_of_owner(event.owner), WHY_LIFE_ENDS[event.why]),)


def close_owner(record: Record, event: OwnerClosed, now_ns: int) -> Done:
    """Its session life has ended; so its resume ends, or yields to the owner that comes after."""
    owner = event.owner
    client = record.owners[owner].client
    newest = record.newest.delete(client) if record.newest.get(client) == owner else record.newest
    record = replace(without_acknowledged(record, owner), owners=record.owners.delete(owner), newest=newest)
    return record, (Forget(life_of_owner(owner)), Feed(record.id, EndResume(owner, why=event.why)))


def does_not_yield(record: Record, event: EndResume | ForgetResume) -> bool:
    return event.seen.status is not YIELDING


def end_resume(record: Record, event: EndResume, now_ns: int) -> Done:
    end = NotOwner() if event.why == "superseded" else ConnectionLost()
    return record, (Feed(event.party, end), Feed(record.id, ForgetResume(event.party)))


def forget_looked_at(record: Record, event: ForgetResume, now_ns: int) -> Done:
    return forget(record, event.party)


def forget_ended(record: Record, event: OwnerEnded, now_ns: int) -> Done:
    return forget(record, event.owner)


def forget(record: Record, owner: str) -> Done:
    """Nothing is left of the owner, and the writer here sends nothing live to it any more."""
    had = record.resumes[owner]
    record = replace(record, resumes=record.resumes.delete(owner))
    writer = record.writers.get(had.session)
    gone = () if writer is None else (Feed(writer, LiveGone(had.token)),)
    return record, (Forget(owner), *gone)


# -- messages and writers -------------------------------------------------------------------------------------------


def hand_over(record: Record, event: HandOver, now_ns: int) -> Done:
    """To the writer of each session; the application hears of the last row alone."""
    begun: list[Effect] = []
    hands: list[Effect] = []
    for one in event.handed:
        record, party, began = with_writer(record, one.session)
        begun += began
        hands.append(Feed(party, Hand(event.message, one.filter, one.qos, one.until_ns)))
    if len(hands) > 1:
        record = replace(record, unwritten=record.unwritten.set(event.message, len(hands) - 1))
    return record, (*begun, *hands, *make_room(record))


def is_not_last(record: Record, event: Written) -> bool:
    """Other rows of the message are not stored yet."""
    return event.message in record.unwritten


def count_row(record: Record, event: Written, now_ns: int) -> Done:
    left = record.unwritten[event.message] - 1
    unwritten = record.unwritten.set(event.message, left) if left else record.unwritten.delete(event.message)
    return replace(record, unwritten=unwritten), ()


def with_writer(record: Record, session: str) -> tuple[Record, str, Effects]:
    """With the writer of the session; one that begins asks for its epoch, and then where the session is live."""
    known = record.writers.get(session)
    if known is not None:
        return record, known, ()
    number = record.number + 1
    party = WRITERS.id_of(record.id, number)
    began: Effects = (
        Begin(party, WRITERS.name, WriterRecord(session, record.node)),
        Feed(party, Start()),
        Feed(record.id, LookForOwner(session)),
    )
    writers, turns = record.writers.set(session, party), record.turns.push(session)
    return replace(record, number=number, writers=writers, turns=turns), party, began


def make_room(record: Record, left: int | None = None) -> Effects:
    """While there is one writer too many the one whose turn it is goes, if it is idle; `left` are looked at."""
    left = len(record.writers) if left is None else left
    if len(record.writers) <= record.writers_max or not left:
        return ()
    session = record.turns.pop()[0]
    return (Feed(record.id, ForgetIdle(record.writers[session], session=session, left=left)),)


def look_for_owner(record: Record, event: LookForOwner, now_ns: int) -> Done:
    return record, (Ask(DATABASE, FindOwner(event.session)),)


def is_turn(record: Record, event: ForgetIdle) -> bool:
    """It is still the first."""
    return bool(record.turns) and record.turns.pop()[0] == event.session


def is_idle(record: Record, event: ForgetIdle) -> bool:
    return is_turn(record, event) and event.seen.status is IDLE


def forget_writer(record: Record, event: ForgetIdle, now_ns: int) -> Done:
    """If it is needed again it has the next epoch."""
    writers, turns = record.writers.delete(event.session), record.turns.pop()[1]
    record = replace(record, writers=writers, turns=turns)
    return record, (Forget(event.party), *make_room(record, event.left - 1))


def look_on(record: Record, event: ForgetIdle, now_ns: int) -> Done:
    """A writer that is busy stays."""
    record = replace(record, turns=record.turns.pop()[1].push(event.session))
    return record, make_room(record, event.left - 1)


# -- other nodes ----------------------------------------------------------------------------------------------------


def is_strange(record: Record, event: Arrived) -> bool:
    return not isinstance(event.message, (MarkerWanted, *FROM_WRITERS, *FROM_NEXT, *FROM_BEFORE))


def refuse_strange(record: Record, event: Arrived, now_ns: int) -> Done:
    raise refusal(event.message, "is not between nodes")


def speaks_for_other(record: Record, event: Arrived) -> bool:
    """As a writer, or as an owner."""
    message, sender = event.message, event.sender
    if isinstance(message, FROM_WRITERS):
        return bool(message.writer != node_of(sender))
    return isinstance(message, (MarkerWanted, *FROM_NEXT)) and message.to != sender


def refuse_speaker(record: Record, event: Arrived | TakeoverAnswered, now_ns: int) -> Done:
    raise refusal(event.message, f"{event.sender} speaks for another")


def refusal(message: Event, why: str) -> RemoteProtocolError:
    """Nobody may say this here."""
    return RemoteProtocolError("session_host", "-", name_of(type(message)), "", why)


def is_of_its_session(record: Record, event: Arrived) -> bool:
    """What comes live is of the session that the owner has, and of the writer that says it."""
    had = record.resumes.get(event.to)
    return had is not None and had.session == event.message.session and not speaks_for_other(record, event)


def is_own_marker(record: Record, event: Arrived) -> bool:
    return isinstance(event.message, MarkerWanted) and life_of(event.sender) == record.id


def is_marker_of_known(record: Record, event: Arrived) -> bool:
    return isinstance(event.message, MarkerWanted) and event.message.session in record.writers


def is_marker(record: Record, event: Arrived) -> bool:
    return isinstance(event.message, MarkerWanted)


def is_live_there(record: Record, event: MarkerAsked) -> bool:
    """The writer knows the session to be live at the owner that asks."""
    return (event.seen.to, event.seen.token) == (event.message.to, event.message.token)


def mark_own(record: Record, event: Arrived | MarkerAsked, now_ns: int) -> Done:
    return mark(record, event.message)


def mark(record: Record, message: MarkerWanted) -> Done:
    """The owner that asks has the session live, and wants a marker."""
    record, party, began = with_writer(record, message.session)
    heard = (Feed(party, LiveKnown(message.to, message.token)), Feed(party, message))
    return record, (*began, *heard, *make_room(record))


def look_at_writer(record: Record, event: Arrived, now_ns: int) -> Done:
    party = record.writers[event.message.session]
    return record, (Feed(record.id, MarkerAsked(party, to=event.to, message=event.message)),)


def hold_marker(record: Record, event: Arrived | MarkerAsked, now_ns: int) -> Done:
    return hold(record, event.message.session, Claim(event.to, event.message))


def hold(record: Record, session: str, claim: Claim) -> Done:
    """It counts when the database says the same."""
    claims = record.claims.hold(session, claim)
    asks = claims.has_open(session) and not record.claims.has_open(session)
    return replace(record, claims=claims), (Ask(DATABASE, FindOwner(session)),) if asks else ()


def judge(record: Record, event: OwnerFound, now_ns: int) -> Done:
    """What other nodes claim is true now, or never was; the writer of the session learns where it is live."""
    proved = record.claims.proved_by(event)
    record = replace(record, claims=record.claims.without(event.session))
    writer = record.writers.get(event.session)
    effects: Effects = ()
    if writer is not None and event.owner:
        effects = (Feed(writer, LiveKnown(event.owner, event.token)),)
    for claim in proved:
        more: Effects = ()
        if isinstance(claim.message, MarkerWanted):
            record, more = mark(record, claim.message)
        elif claim.to in record.resumes:
            more = (Feed(claim.to, claim.message),)
        effects = (*effects, *more)
    return record, effects


def is_asked_here(record: Record, event: Arrived) -> bool:
    return isinstance(event.message, FROM_NEXT) and event.to in record.resumes


def is_asked_of_nobody(record: Record, event: Arrived) -> bool:
    return isinstance(event.message, FROM_NEXT)


def look_at_asked(record: Record, event: Arrived, now_ns: int) -> Done:
    return record, (Feed(record.id, TakeoverAsked(event.to, sender=event.sender, message=event.message)),)


def refuse_takeover(record: Record, event: Arrived | TakeoverAsked, now_ns: int) -> Done:
    """The owner is not here, or has another client."""
    return record, (Send(event.sender, TakeoverRefused(event.message.client, event.message.token)),)


def has_other_client(record: Record, event: TakeoverAsked) -> bool:
    return bool(event.seen.client != event.message.client)


def is_believed(record: Record, event: TakeoverAsked) -> bool:
    """It ends what it has begun, it is of this node, or it asks again."""
    message = event.message
    is_own = life_of(event.sender) == record.id
    return isinstance(message, EndTakeover) or is_own or message.token == event.seen.claim


def pass_on(record: Record, event: TakeoverAsked | TakeoverAnswered, now_ns: int) -> Done:
    return record, (Feed(event.party, event.message),)


def hold_takeover(record: Record, event: TakeoverAsked, now_ns: int) -> Done:
    return hold(record, event.seen.session, Claim(event.party, event.message))


def is_answer_here(record: Record, event: Arrived) -> bool:
    return isinstance(event.message, FROM_BEFORE) and event.to in record.resumes


def look_at_answered(record: Record, event: Arrived, now_ns: int) -> Done:
    return record, (Feed(record.id, TakeoverAnswered(event.to, sender=event.sender, message=event.message)),)


def is_from_elsewhere(record: Record, event: TakeoverAnswered) -> bool:
    return node_of(event.sender) != node_of(event.seen.old)


def look_at_followers(record: Record, event: LinkLost | WriterDown, now_ns: int) -> Done:
    return record, tuple(Feed(record.id, FollowerOf(owner, event=event)) for owner in keys_in_order(record.resumes))


def follows(record: Record, event: FollowerOf) -> bool:
    flow = event.seen.flows.get(event.event.writer)
    return flow is not None and not is_read_out(flow)


def tell_follower(record: Record, event: FollowerOf, now_ns: int) -> Done:
    return record, (Feed(event.party, event.event),)


def is_new_to(record: Record, event: MeetWriter) -> bool:
    return event.party in record.resumes and event.writer not in event.seen.flows


def meet(record: Record, event: MeetWriter, now_ns: int) -> Done:
    return record, (Feed(event.party, WriterUp(event.writer)),)


# fmt: off
ROWS = (
    #   on                    from to    do                     when                clause
    Row(ConnectClient,        UP,  STAY, look_at_earlier,       is_known_client,    "PS-203"),
    Row(ConnectClient,        UP,  STAY, begin_life,            None,               "PS-140"),
    Row(Overtake,             UP,  STAY, overtake,              waits_for_lock,     "PS-203"),
    Row(Overtake,             UP,  STAY, connect,               None,               "PS-140"),
    Row(LeaveClient,          UP,  STAY, leave,                 is_connected,       "PS-146"),
    Row(LoseClient,           UP,  STAY, lose_and_commit,       has_acknowledged,   "PS-146"),
    Row(LoseClient,           UP,  STAY, lose,                  is_connected,       "PS-145"),
    Row(TakeAcknowledgements, UP,  STAY, take_acknowledgements, has_resume,         "PS-146"),
    Row(CommitAcknowledged,   UP,  STAY, commit_all,            None,               "PS-146"),
    Row(CommitOf,             UP,  STAY, commit,                has_state,          "PS-146"),
    Ignore((CommitOf, StateCommitted, NotOwner), UP,                                "PS-146"),
    Ignore((LeaveClient, LoseClient, TakeAcknowledgements), UP,                     "PS-145"),

    Row(OwnerOpened,          UP,  STAY, begin_resume,          None,               "PS-140"),
    Row(OwnerEnded,           UP,  STAY, forget_ended,          is_closed,          "PS-161"),
    Row(OwnerEnded,           UP,  STAY, end_life,              is_end_of_life,     "PS-145"),
    Ignore((OwnerEnded,),     UP,                                                   "PS-145"),
    Row(OwnerClosed,          UP,  STAY, close_owner,           None,               "PS-145"),
    Row(EndResume,            UP,  STAY, end_resume,            does_not_yield,     "PS-145"),
    Row(ForgetResume,         UP,  STAY, forget_looked_at,      does_not_yield,     "PS-145"),
    Ignore((EndResume, ForgetResume), UP,                                           "PS-161"),

    Row(HandOver,             UP,  STAY, hand_over,             None,               "PS-141"),
    Row(Written,              UP,  STAY, count_row,             None,               "PS-141"),
    Row(LookForOwner,         UP,  STAY, look_for_owner,        None,               "PS-142"),
    Row(ForgetIdle,           UP,  STAY, forget_writer,         is_idle,            "PS-148"),
    Row(ForgetIdle,           UP,  STAY, look_on,               is_turn,            "PS-148"),
    Ignore((ForgetIdle,),     UP,                                                   "PS-148"),

    Row(Arrived,              UP,  STAY, refuse_strange,        is_strange,         "PS-144"),
    Row(Arrived,              UP,  STAY, refuse_speaker,        speaks_for_other,   "PS-144"),
    Row(Arrived,              UP,  STAY, mark_own,              is_own_marker,      "PS-143"),
    Row(Arrived,              UP,  STAY, look_at_writer,        is_marker_of_known, "PS-164"),
    Row(Arrived,              UP,  STAY, hold_marker,           is_marker,          "PS-164"),
    Row(Arrived,              UP,  STAY, look_at_asked,         is_asked_here,      "PS-160"),
    Row(Arrived,              UP,  STAY, refuse_takeover,       is_asked_of_nobody, "PS-160"),
    Row(Arrived,              UP,  STAY, look_at_answered,      is_answer_here,     "PS-160"),
    Ignore((Arrived,),        UP,                                                   "PS-144"),
    Row(MarkerAsked,          UP,  STAY, mark_own,              is_live_there,      "PS-143"),
    Row(MarkerAsked,          UP,  STAY, hold_marker,           None,               "PS-164"),
    Row(OwnerFound,           UP,  STAY, judge,                 None,               "PS-164"),
    Row(TakeoverAsked,        UP,  STAY, refuse_takeover,       has_other_client,   "PS-160"),
    Row(TakeoverAsked,        UP,  STAY, pass_on,               is_believed,        "PS-160"),
    Row(TakeoverAsked,        UP,  STAY, hold_takeover,         None,               "PS-164"),
    Row(TakeoverAnswered,     UP,  STAY, refuse_speaker,        is_from_elsewhere,  "PS-160"),
    Row(TakeoverAnswered,     UP,  STAY, pass_on,               None,               "PS-160"),

    Row(LinkLost,             UP,  STAY, look_at_followers,     None,               "PS-147"),
    Row(WriterDown,           UP,  STAY, look_at_followers,     None,               "PS-147"),
    Row(FollowerOf,           UP,  STAY, tell_follower,         follows,            "PS-147"),
    Ignore((FollowerOf,),     UP,                                                   "PS-147"),
    Row(MeetWriter,           UP,  STAY, meet,                  is_new_to,          "PS-147"),
    Ignore((MeetWriter,),     UP,                                                   "PS-147"),
)
# fmt: on

SESSION_HOST_MACHINE = Fsm(
    "session_host",
    protocol="persistent_sessions",
    record=SessionHostRecord,
    states=SessionHostStatus,
    initial=UP,
    rows=ROWS,
)


# -- what its parties tell it ---------------------------------------------------------------------------------------


def opened(party: str, event: SessionOpened) -> OwnerOpened:
    """By its owner; a session that is live at this owner itself is taken over from nobody."""
    owner = owner_of(party)
    live = event.live if event.present and event.live != owner else ""
    return OwnerOpened(owner, event.session, event.token, live)


def closed(party: str, event: SessionClosed) -> OwnerClosed:
    return OwnerClosed(owner_of(party), event.why)


def ended(party: str, event: ResumeEnded) -> OwnerEnded:
    return OwnerEnded(party, event.why)


def attach(party: str, event: Resumed) -> Attach:
    return Attach()


def supersede(party: str, event: Yielded) -> NotOwner:
    return NotOwner()


# fmt: off
SESSION_HOST = Process(
    "session_host",
    SESSION_HOST_MACHINE,
    kinds=(LIVES, RESUMES, WRITERS, COLLECTORS),
    begin=begin_collector,
    routes=(
        EventRoute((Live, LiveMarker), (OUTSIDE,), ADDRESSEE, "PS-144", when=is_of_its_session),
        EventRoute((SessionOpened,), (LIVES.name,), PROCESS, "PS-140", change=opened, as_type=OwnerOpened),
        EventRoute((Resumed,), (RESUMES.name,), LIVES.name, "PS-140", change=attach, as_type=Attach, paired=True),
        EventRoute((Yielded,), (RESUMES.name,), LIVES.name, "PS-161", change=supersede, as_type=NotOwner, paired=True),
        EventRoute((ResumeEnded,), (RESUMES.name,), PROCESS, "PS-145", change=ended, as_type=OwnerEnded),
        EventRoute((SessionClosed,), (LIVES.name,), PROCESS, "PS-145", change=closed, as_type=OwnerClosed, copied=True),
        EventRoute((Written,), (WRITERS.name,), PROCESS, "PS-141", when=is_not_last),
    ),
)
# fmt: on
