"""What a node of sessions decides for its clients: which owner begins, what is committed, and how an owner ends."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from statemachines.kernel import (
    Ask,
    Begin,
    Effects,
    Event,
    Feed,
    Forget,
    Map,
    Send,
    keys_in_order,
    life_of,
)
from statemachines.persistent_sessions.delivery_actions import change_with_receipts
from statemachines.persistent_sessions.life_record import (
    LOCKING,
    Disconnect,
    LifeRecord,
)
from statemachines.persistent_sessions.request import DATABASE, CommitState, NotOwner
from statemachines.persistent_sessions.resume_record import (
    YIELDING,
    ConnectionLost,
    Discarded,
    ResumeRecord,
    ResumeSession,
)
from statemachines.persistent_sessions.session_host_parties import LIVES, RESUMES, Done, Record, life_of_owner
from statemachines.persistent_sessions.session_host_record import (
    CommitAcknowledged,
    CommitOf,
    ConnectClient,
    ConnectedOwner,
    EndResume,
    ForgetResume,
    LeaveClient,
    LoseClient,
    MeetWriter,
    Overtake,
    OwnedSession,
    OwnerClosed,
    OwnerEnded,
    OwnerOpened,
    Position,
    RowsSeen,
    TakeAcknowledgements,
)
from statemachines.persistent_sessions.takeover_message import OwnerReplaced
from statemachines.persistent_sessions.writer_flow_record import DONE, LinkLost
from statemachines.persistent_sessions.writer_record import LiveGone

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
