"""What a node of sessions decides about other nodes: whose word counts, and which owner hears of it.

What a node of sessions decides about its writers: which one gets a message, which one begins, and which one
goes.

What a node of sessions decides for its clients: which owner begins, what is committed, and how an owner ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from statemachines.kernel import (
    Arrived,
    Ask,
    Begin,
    Effect,
    Effects,
    Event,
    Feed,
    Forget,
    Map,
    RemoteProtocolError,
    Send,
    Tell,
    keys_in_order,
    life_of,
    name_of,
    node_of,
)
from statemachines.persistent_sessions.delivery import change_with_receipts
from statemachines.persistent_sessions.life_record import LOCKING, Disconnect, LifeRecord
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Written
from statemachines.persistent_sessions.request import DATABASE, CommitState, NotOwner
from statemachines.persistent_sessions.resume_record import (
    YIELDING,
    ConnectionLost,
    Discarded,
    ResumeRecord,
    ResumeSession,
)
from statemachines.persistent_sessions.session_host_parties import LIVES, RESUMES, WRITERS, Done, Record, life_of_owner
from statemachines.persistent_sessions.session_host_record import (
    CommitAcknowledged,
    CommitOf,
    ConnectClient,
    ConnectedOwner,
    EndResume,
    FollowerOf,
    ForgetIdle,
    ForgetResume,
    HandMessages,
    LeaveClient,
    LookForOwner,
    LoseClient,
    MarkerAsked,
    MatchedMessage,
    MeetWriter,
    Overtake,
    OwnedSession,
    OwnerClosed,
    OwnerEnded,
    OwnerOpened,
    Position,
    RoutedMessage,
    RowsSeen,
    TakeAcknowledgements,
    TakeoverAnswered,
    TakeoverAsked,
    Undelivered,
)
from statemachines.persistent_sessions.takeover_record import (
    BeginTakeover,
    Claims,
    EndTakeover,
    FindOwner,
    OwnerFound,
    OwnerReplaced,
    SessionClaim,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)
from statemachines.persistent_sessions.writer_flow import DONE, LinkLost, WriterDown, WriterFlowRecord, WriterUp
from statemachines.persistent_sessions.writer_record import (
    IDLE,
    Hand,
    HandRange,
    LiveGone,
    LiveKnown,
    RangeWritten,
    Start,
    WriterRecord,
)

WHY_LIFE_ENDS: Final[Map[str, Event]] = Map(
    {"superseded": NotOwner(), "absent": Discarded(), "timeout": ConnectionLost()}
)
"""Why a resume has ended -> what its session life makes of it; where the host has ended it, nothing."""


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
    owners = record.owners.set(owner, ConnectedOwner(event.client, times))
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
    """What the client has acknowledged.  The resume hears of no answer: it has asked for all else before."""
    resume: ResumeRecord = event.seen
    assert resume.delivery is not None
    return record, (Ask(DATABASE, CommitState(resume.session, resume.token, change_with_receipts(resume.delivery))),)


# -- the parties of an owner ----------------------------------------------------------------------------------------


def begin_resume(record: Record, event: OwnerOpened, now_ns: int) -> Done:
    owner = record.owners[event.owner]
    resume = ResumeRecord(event.owner, owner.client, event.token, owner.times, event.live, left=event.left)
    record = replace(record, resumes=record.resumes.set(event.owner, OwnedSession(event.session, event.token)))
    return record, (Begin(event.owner, RESUMES.name, resume), Feed(event.owner, ResumeSession()))


def replaces_own(record: Record, event: OwnerOpened) -> bool:
    return event.replaced in record.owners


def begin_in_place(record: Record, event: OwnerOpened, now_ns: int) -> Done:
    record, effects = begin_resume(record, event, now_ns)
    return record, (*discard(event.replaced), *effects)


def discard(owner: str) -> Effects:
    """Its session is gone, and a fresh one of its client in its place."""
    gone = Discarded()
    return Feed(owner, gone), Feed(life_of_owner(owner), gone)


def replaces_other(record: Record, event: OwnerOpened) -> bool:
    return bool(event.replaced) and life_of(event.replaced) != record.id


def begin_and_tell(record: Record, event: OwnerOpened, now_ns: int) -> Done:
    replaced = OwnerReplaced(record.owners[event.owner].client, event.owner, event.token)
    record, effects = begin_resume(record, event, now_ns)
    return record, (Send(event.replaced, replaced), *effects)


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
    record = with_behind(without_acknowledged(record, owner), owner, Map())
    record = replace(record, owners=record.owners.delete(owner), newest=newest)
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


# -- what the database has, and nobody has told ---------------------------------------------------------------------


def is_superseded(record: Record, event: RowsSeen) -> bool:
    return event.superseded


def end_superseded(record: Record, event: RowsSeen, now_ns: int) -> Done:
    return record, (Feed(event.party, NotOwner()),)


def note_rows(record: Record, event: RowsSeen, now_ns: int) -> Done:
    """A row that the last look has found, and that is not taken yet, does not come any more."""
    owner, resume = event.party, event.seen
    before = record.behind.get(owner, Map())
    lost = [Feed(owner, LinkLost(one)) for one in keys_in_order(before) if is_behind(resume, one, before[one])]
    met = (Feed(record.id, MeetWriter(owner, writer=writer)) for writer in event.writers)
    return with_behind(record, owner, event.rows), (*lost, *met)


def with_behind(record: Record, owner: str, rows: Map[str, Position]) -> Record:
    if rows:
        return replace(record, behind=record.behind.set(owner, rows))
    return replace(record, behind=record.behind.delete(owner)) if owner in record.behind else record


def is_behind(resume: ResumeRecord, writer: str, at: Position) -> bool:
    """The owner follows this writer, and has not taken that row."""
    flow = resume.flows.get(writer)
    return flow is not None and flow.status is DONE and (flow.epoch, flow.taken) < at


def list_followed(resume: ResumeRecord, node: str) -> tuple[tuple[str, int, int], ...]:
    """What an owner at this node follows of writers of other nodes: (writer, epoch, number of the last row taken)."""
    flows = ((writer, flow) for writer, flow in sorted(resume.flows.items()) if writer != node)
    return tuple((writer, flow.epoch, flow.taken) for writer, flow in flows if flow.status is DONE)


Terms = tuple[str, int, int, tuple[str, ...]]
"""(filter, QoS, until_ns, other filters): by which a session gets a message in one row."""

FILTER_BYTES_MAX: Final = 65_536
"""Of the filters that one row lists: a row fits into a frame."""

# -- messages and writers -------------------------------------------------------------------------------------------


def hand_over(record: Record, event: HandMessages, now_ns: int) -> Done:
    """To the writer of each session, which gets all that is for it at once; the application hears of the last row of
    each message alone."""
    begun: list[Effect] = []
    hands: dict[str, tuple[Hand, ...]] = {}
    left: dict[str, int] = {}
    for alike in group_alike(event.messages):
        found = hands_of(alike)
        rows = sum(map(len, found.values())) // len(alike)
        if rows > 1:
            left.update((one.id, rows - 1) for one in alike)
        for session, its in found.items():
            record, party, began = with_writer(record, session)
            begun += began
            hands[party] = hands.get(party, ()) + its
    fed = (Feed(party, its[0] if len(its) == 1 else HandRange(its)) for party, its in hands.items())
    record = replace(record, unwritten=record.unwritten.update(left))
    return record, (*begun, *fed, *make_room(record))


def group_alike(messages: Iterable[RoutedMessage]) -> Iterator[tuple[RoutedMessage, ...]]:
    """Messages that follow each other and are for the same subscriptions."""
    return (tuple(its) for _, its in groupby(messages, attrgetter("handed")))


def hands_of(alike: Sequence[RoutedMessage]) -> dict[str, tuple[Hand, ...]]:
    """What each session gets of messages that are for the same subscriptions: sessions that get the same share it."""
    routes: dict[str, list[MatchedMessage]] = {}
    for one in alike[0].handed:
        routes.setdefault(one.session, []).append(one)
    terms = {session: fold_routes(its) for session, its in routes.items()}
    made = {
        its: tuple(
            Hand(one.id, topic_filter, qos, until_ns, one.since_ns, more)
            for one in alike
            for topic_filter, qos, until_ns, more in its
        )
        for its in set(terms.values())
    }
    return {session: made[its] for session, its in terms.items()}


def fold_routes(routes: Sequence[MatchedMessage]) -> tuple[Terms, ...]:
    """One row for all subscriptions of a session that have the same quality, as far as their filters have room in
    one."""
    if len(routes) == 1:
        return ((routes[0].filter, routes[0].qos, routes[0].until_ns, ()),)
    rows: list[Terms] = []
    for (qos, until_ns), alike in groupby(sorted(routes, key=quality_of), quality_of):
        filters: list[str] = []
        size = 0
        for one in alike:
            size += len(one.filter.encode())
            if filters and size > FILTER_BYTES_MAX:
                rows.append((filters[0], qos, until_ns, tuple(filters[1:])))
                filters, size = [], len(one.filter.encode())
            filters.append(one.filter)
        rows.append((filters[0], qos, until_ns, tuple(filters[1:])))
    return tuple(rows)


def quality_of(route: MatchedMessage) -> tuple[int, int]:
    """What the copies of one row have in common."""
    return route.qos, route.until_ns


def is_not_last(record: Record, event: Written) -> bool:
    """Other rows of the message are not stored yet."""
    return event.message in record.unwritten


def count_row(record: Record, event: Written, now_ns: int) -> Done:
    left = record.unwritten[event.message] - 1
    unwritten = record.unwritten.set(event.message, left) if left else record.unwritten.delete(event.message)
    return replace(record, unwritten=unwritten), ()


def count_range(record: Record, event: RangeWritten, now_ns: int) -> Done:
    """The application hears of those whose last row this is."""
    unwritten = record.unwritten.mutate()
    written: list[Effect] = []
    for one in event.hands:
        left = unwritten.get(one.message)
        if left is None:
            written.append(Tell(Written(one.message, one.filter)))
        elif left > 1:
            unwritten[one.message] = left - 1
        else:
            del unwritten[one.message]
    return replace(record, unwritten=unwritten.finish()), tuple(written)


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
