"""What a node of sessions decides about other nodes: whose word counts, and which owner hears of it."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import (
    Arrived,
    Ask,
    Effects,
    Event,
    Feed,
    RemoteProtocolError,
    Send,
    keys_in_order,
    life_of,
    name_of,
    node_of,
)
from statemachines.persistent_sessions.claims import Claims, SessionClaim
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted
from statemachines.persistent_sessions.owner_request import FindOwner, OwnerFound
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.session_host_owners import discard
from statemachines.persistent_sessions.session_host_parties import Done, Record
from statemachines.persistent_sessions.session_host_record import (
    FollowerOf,
    MarkerAsked,
    MeetWriter,
    TakeoverAnswered,
    TakeoverAsked,
    Undelivered,
)
from statemachines.persistent_sessions.session_host_writers import make_room, with_writer
from statemachines.persistent_sessions.takeover_message import (
    BeginTakeover,
    EndTakeover,
    OwnerReplaced,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)
from statemachines.persistent_sessions.writer_flow_record import DONE, LinkLost, WriterDown, WriterFlowRecord, WriterUp
from statemachines.persistent_sessions.writer_record import LiveKnown

FROM_WRITERS = (Live, LiveMarker)
FROM_NEXT = (BeginTakeover, EndTakeover)
FROM_BEFORE = (TakeoverBegun, TakeoverEnded, TakeoverRefused)


def is_read_out(flow: WriterFlowRecord) -> bool:
    """The writer was fenced because it was gone, everything of it is read, and nothing was heard of it since."""
    return flow.status is DONE and flow.gone


# -- other nodes ----------------------------------------------------------------------------------------------------


def is_strange(record: Record, event: Arrived) -> bool:
    return not isinstance(event.message, (MarkerWanted, OwnerReplaced, *FROM_WRITERS, *FROM_NEXT, *FROM_BEFORE))


def refuse_strange(record: Record, event: Arrived, now_ns: int) -> Done:
    raise refusal(event.message, "is not between nodes")


def speaks_for_other(record: Record, event: Arrived) -> bool:
    """As a writer, as an owner, or as the node of one."""
    message, sender = event.message, event.sender
    if isinstance(message, FROM_WRITERS):
        return bool(message.writer != node_of(sender))
    if isinstance(message, OwnerReplaced):
        return life_of(message.to) != life_of(sender)
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
    return hold(record, event.message.session, SessionClaim(event.to, event.message))


def hold(record: Record, session: str, claim: SessionClaim) -> Done:
    """It counts when the database says the same."""
    return with_claims(record, record.claims.hold(session, claim), session)


def with_claims(record: Record, claims: Claims, session: str) -> Done:
    """With these; the database is asked if they wait for another look."""
    look = claims.look_of(session)
    asks = look not in (0, record.claims.look_of(session))
    return replace(record, claims=claims), (Ask(DATABASE, FindOwner(session, look)),) if asks else ()


def judge(record: Record, event: OwnerFound, now_ns: int) -> Done:
    """What other nodes had claimed before they were looked for is true now, or never was; the writer of the session
    learns where it is live."""
    proved = record.claims.proved_by(event)
    record, effects = with_claims(record, record.claims.without(event), event.session)
    writer = record.writers.get(event.session)
    if writer is not None and event.owner and not any(isinstance(one.message, MarkerWanted) for one in proved):
        effects = (*effects, Feed(writer, LiveKnown(event.owner, event.token)))
    for claim in proved:
        more: Effects = ()
        if isinstance(claim.message, MarkerWanted):
            record, more = mark(record, claim.message)
        elif isinstance(claim.message, OwnerReplaced):
            more = discard(claim.to)
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
    assert isinstance(event.message, BeginTakeover)  # an end is believed
    return hold(record, event.seen.session, SessionClaim(event.party, event.message))


def is_answer_here(record: Record, event: Arrived) -> bool:
    return isinstance(event.message, FROM_BEFORE) and event.to in record.resumes


def look_at_answered(record: Record, event: Arrived, now_ns: int) -> Done:
    return record, (Feed(record.id, TakeoverAnswered(event.to, sender=event.sender, message=event.message)),)


def is_from_elsewhere(record: Record, event: TakeoverAnswered) -> bool:
    """An owner that takes over from nobody any more may be refused again, since it has asked again."""
    return bool(event.seen.old) and node_of(event.sender) != node_of(event.seen.old)


def is_replaced(record: Record, event: Arrived) -> bool:
    return isinstance(event.message, OwnerReplaced) and event.to in record.resumes


def hold_replaced(record: Record, event: Arrived, now_ns: int) -> Done:
    return hold(record, record.resumes[event.to].session, SessionClaim(event.to, event.message))


def is_takeover(record: Record, event: Undelivered) -> bool:
    return isinstance(event.message, FROM_NEXT)


def refuse_undelivered(record: Record, event: Undelivered, now_ns: int) -> Done:
    """Nobody there can answer, and the owner would wait for as long as one that is there may take."""
    return record, (Feed(event.sender, TakeoverRefused(event.message.client, event.message.token, True)),)


def look_at_followers(record: Record, event: LinkLost | WriterDown, now_ns: int) -> Done:
    is_dead = isinstance(event, WriterDown)
    looks = (FollowerOf(owner, writer=event.writer, is_dead=is_dead) for owner in keys_in_order(record.resumes))
    return record, tuple(Feed(record.id, look) for look in looks)


def follows(record: Record, event: FollowerOf) -> bool:
    flow = event.seen.flows.get(event.writer)
    return flow is not None and not is_read_out(flow)


def tell_follower(record: Record, event: FollowerOf, now_ns: int) -> Done:
    return record, (Feed(event.party, WriterDown(event.writer) if event.is_dead else LinkLost(event.writer)),)


def is_new_to(record: Record, event: MeetWriter) -> bool:
    return event.party in record.resumes and event.writer not in event.seen.flows


def meet(record: Record, event: MeetWriter, now_ns: int) -> Done:
    return record, (Feed(event.party, WriterUp(event.writer)),)
