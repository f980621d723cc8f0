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

SessionHost: the machines of one node of sessions.

What it decides is the declared process `SESSION_HOST`; here are the calls of its driver, each an event of that process,
and what may be read of it.  No input or output of its own: a driver, or a simulator, performs what comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from statemachines.kernel import (
    ADDRESSEE,
    OUTSIDE,
    PROCESS,
    STAY,
    Arrived,
    EventRoute,
    Fsm,
    Ignore,
    Message,
    Outgoing,
    Process,
    ProcessRunner,
    Row,
)
from statemachines.kernel.node import Observer
from statemachines.persistent_sessions.collector import Graces
from statemachines.persistent_sessions.life_record import KEEP, Attach, Connect, SessionClosed, SessionOpened
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import Live, LiveMarker, Puback, Pubcomp, Pubrec, Written
from statemachines.persistent_sessions.request import NotOwner, StateCommitted
from statemachines.persistent_sessions.resume_record import Resumed, ResumeEnded, ResumeRecord, Yielded
from statemachines.persistent_sessions.session_host_parties import (
    COLLECTORS,
    LIVES,
    RESUMES,
    WRITERS,
    begin_collector,
    owner_of,
)
from statemachines.persistent_sessions.session_host_peers import (
    begin_and_tell,
    begin_in_place,
    begin_life,
    begin_resume,
    close_owner,
    commit,
    commit_all,
    connect,
    count_range,
    count_row,
    does_not_yield,
    end_life,
    end_resume,
    end_superseded,
    follows,
    forget_ended,
    forget_looked_at,
    forget_writer,
    hand_over,
    has_acknowledged,
    has_other_client,
    has_resume,
    has_state,
    hold_marker,
    hold_replaced,
    hold_takeover,
    is_answer_here,
    is_asked_here,
    is_asked_of_nobody,
    is_believed,
    is_closed,
    is_connected,
    is_end_of_life,
    is_from_elsewhere,
    is_idle,
    is_known_client,
    is_live_there,
    is_marker,
    is_marker_of_known,
    is_new_to,
    is_not_last,
    is_of_its_session,
    is_own_marker,
    is_replaced,
    is_strange,
    is_superseded,
    is_takeover,
    is_turn,
    judge,
    leave,
    list_followed,
    look_at_answered,
    look_at_asked,
    look_at_earlier,
    look_at_followers,
    look_at_writer,
    look_for_owner,
    look_on,
    lose,
    lose_and_commit,
    mark_own,
    meet,
    note_rows,
    overtake,
    pass_on,
    refuse_speaker,
    refuse_strange,
    refuse_takeover,
    refuse_undelivered,
    replaces_other,
    replaces_own,
    speaks_for_other,
    take_acknowledgements,
    tell_follower,
    waits_for_lock,
)
from statemachines.persistent_sessions.session_host_record import (
    UP,
    WRITERS_MAX,
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
    MeetWriter,
    Overtake,
    OwnerClosed,
    OwnerEnded,
    OwnerOpened,
    RoutedMessage,
    RowsSeen,
    SessionHostRecord,
    SessionHostStatus,
    TakeAcknowledgements,
    TakeoverAnswered,
    TakeoverAsked,
    Undelivered,
)
from statemachines.persistent_sessions.takeover_record import OwnerFound
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow import LinkLost, WriterDown
from statemachines.persistent_sessions.writer_record import RangeWritten

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

    Row(OwnerOpened,          UP,  STAY, begin_in_place,        replaces_own,       "PS-615"),
    Row(OwnerOpened,          UP,  STAY, begin_and_tell,        replaces_other,     "PS-616"),
    Row(OwnerOpened,          UP,  STAY, begin_resume,          None,               "PS-140"),
    Row(OwnerEnded,           UP,  STAY, forget_ended,          is_closed,          "PS-161"),
    Row(OwnerEnded,           UP,  STAY, end_life,              is_end_of_life,     "PS-145"),
    Ignore((OwnerEnded,),     UP,                                                   "PS-145"),
    Row(OwnerClosed,          UP,  STAY, close_owner,           None,               "PS-145"),
    Row(EndResume,            UP,  STAY, end_resume,            does_not_yield,     "PS-145"),
    Row(ForgetResume,         UP,  STAY, forget_looked_at,      does_not_yield,     "PS-145"),
    Ignore((EndResume, ForgetResume), UP,                                           "PS-161"),

    Row(HandMessages,            UP,  STAY, hand_over,             None,               "PS-141"),
    Row(Written,              UP,  STAY, count_row,             None,               "PS-141"),
    Row(RangeWritten,         UP,  STAY, count_range,           None,               "PS-141"),
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
    Row(Arrived,              UP,  STAY, hold_replaced,         is_replaced,        "PS-164"),
    Ignore((Arrived,),        UP,                                                   "PS-144"),
    Row(MarkerAsked,          UP,  STAY, mark_own,              is_live_there,      "PS-143"),
    Row(MarkerAsked,          UP,  STAY, hold_marker,           None,               "PS-164"),
    Row(OwnerFound,           UP,  STAY, judge,                 None,               "PS-164"),
    Row(TakeoverAsked,        UP,  STAY, refuse_takeover,       has_other_client,   "PS-160"),
    Row(TakeoverAsked,        UP,  STAY, pass_on,               is_believed,        "PS-160"),
    Row(TakeoverAsked,        UP,  STAY, hold_takeover,         None,               "PS-164"),
    Row(TakeoverAnswered,     UP,  STAY, refuse_speaker,        is_from_elsewhere,  "PS-160"),
    Row(TakeoverAnswered,     UP,  STAY, pass_on,               None,               "PS-160"),

    Row(Undelivered,          UP,  STAY, refuse_undelivered,    is_takeover,        "PS-617"),
    Ignore((Undelivered,),    UP,                                                   "PS-617"),

    Row(RowsSeen,             UP,  STAY, end_superseded,        is_superseded,      "PS-618"),
    Row(RowsSeen,             UP,  STAY, note_rows,             None,               "PS-153"),
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


def name_opened(party: str, event: SessionOpened) -> OwnerOpened:
    """By its owner.  A session that was present is taken over from where it is live, a fresh one replaces what is live
    there; with this owner itself neither is done."""
    owner = owner_of(party)
    other = event.live if event.live != owner else ""
    live, replaced = (other, "") if event.present else ("", other)
    return OwnerOpened(owner, event.session, event.token, live, event.left, replaced)


def name_closed(party: str, event: SessionClosed) -> OwnerClosed:
    return OwnerClosed(owner_of(party), event.why)


def name_ended(party: str, event: ResumeEnded) -> OwnerEnded:
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
        EventRoute((SessionOpened,), (LIVES.name,), PROCESS, "PS-140", change=name_opened, as_type=OwnerOpened),
        EventRoute((Resumed,), (RESUMES.name,), LIVES.name, "PS-140", change=attach, as_type=Attach, paired=True),
        EventRoute((Yielded,), (RESUMES.name,), LIVES.name, "PS-161", change=supersede, as_type=NotOwner, paired=True),
        EventRoute((ResumeEnded,), (RESUMES.name,), PROCESS, "PS-145", change=name_ended, as_type=OwnerEnded),
        EventRoute((SessionClosed,), (LIVES.name,), PROCESS, "PS-145", change=name_closed, as_type=OwnerClosed,
                   copied=True),
        EventRoute((Written,), (WRITERS.name,), PROCESS, "PS-141", when=is_not_last),
        EventRoute((RangeWritten,), (WRITERS.name,), PROCESS, "PS-141"),
    ),
)
# fmt: on


class SessionHost(ProcessRunner):
    """`life` of the node; `times`, `life_times`: how long its parties wait; `graces`: those of its collector (None: it
    has none), and `now_ns`, when it begins; `writers_max`: sessions that it has a writer for; `sessions_max`: beyond so
    many that the store keeps it opens none for a client without one (0: any number).

    The application is told `Accepted` and `SessionClosed` by the session life of an owner (see `owner_of`), and
    `Written` once a message, when its last row is stored.
    """

    def __init__(
        self, life: str, times: Times | None = None, life_times: LifeTimes | None = None, *,
        graces: Graces | None = None, now_ns: int = 0, observe: Observer | None = None,
        observe_own: Observer | None = None, writers_max: int = WRITERS_MAX, sessions_max: int = 0, check: bool = False,
    ) -> None:  # fmt: skip
        record = SessionHostRecord(life, times or Times(), life_times or LifeTimes(), graces, writers_max, sessions_max)
        super().__init__(SESSION_HOST, record, now_ns=now_ns, observe=observe, observe_own=observe_own, check=check)

    # -- clients --------------------------------------------------------------------------------------------------

    @property
    def next_owner(self) -> str:
        """The owner that the next `connect` makes."""
        return RESUMES.id_of(self.id, self.record.number + 1)

    def connect(
        self, client: str, receive_maximum: int, *, clean: bool, expiry_ms: int, now_ns: int, instance: str = "",
        attempt: int = 0,
    ) -> list[Outgoing]:  # fmt: skip
        """Connect a `client` that receives so many messages at a time, as `next_owner`."""
        connect = Connect(clean, expiry_ms, instance, attempt)
        return self.call(ConnectClient(client, receive_maximum, connect), now_ns)

    def leave(self, owner: str, now_ns: int, expiry_ms: int = KEEP) -> list[Outgoing]:
        """The client says good-bye; its session outlives that by `expiry_ms`, if it may.  What it has acknowledged
        since the last commit is committed, and does not come again."""
        return self.call(LeaveClient(owner, expiry_ms), now_ns)

    def lose(self, owner: str, now_ns: int) -> list[Outgoing]:
        """The client is gone without a word, or has to go.  What it has acknowledged does not come again either."""
        return self.call(LoseClient(owner), now_ns)

    def acknowledge(self, owner: str, messages: Iterable[Puback | Pubrec | Pubcomp], now_ns: int) -> list[Outgoing]:
        """The client has messages, or has done with them."""
        return self.call(TakeAcknowledgements(owner, tuple(messages)), now_ns)

    def commit_acknowledged(self, now_ns: int) -> list[Outgoing]:
        """What was acknowledged since this was called last: nobody knows when the next commit comes."""
        return self.call(CommitAcknowledged(), now_ns)

    # -- messages and other nodes ---------------------------------------------------------------------------------

    def publish(self, messages: Iterable[RoutedMessage], now_ns: int) -> list[Outgoing]:
        """Hand messages that are stored to the writer of each session that they are for."""
        return self.call(HandMessages(tuple(messages)), now_ns)

    def lose_link(self, writer: str, now_ns: int) -> list[Outgoing]:
        """What was on its way from this node is lost."""
        return self.call(LinkLost(writer), now_ns)

    def lose_writer(self, writer: str, now_ns: int) -> list[Outgoing]:
        """The node is dead: its rows are read from the database."""
        return self.call(WriterDown(writer), now_ns)

    def fail_to_send(self, party: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """There is no link to the party that this one has sent a message to."""
        return self.call(Undelivered(party, to, message), now_ns)

    def take_look(self, seen: RowsSeen, now_ns: int) -> list[Outgoing]:
        """What the database has of the session of an owner."""
        return self.call(seen, now_ns)

    def list_followed(self, owner: str) -> tuple[tuple[str, int, int], ...]:
        """What the owner follows of writers of other nodes: (writer, epoch, number of the last row taken)."""
        resume = self.resume_of(owner)
        return () if resume is None else list_followed(resume, self.node)

    # -- what may be read -----------------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        """The name of the node."""
        name: str = self.record.node
        return name

    @property
    def owners(self) -> Mapping[str, ConnectedOwner]:
        """Owners whose clients are connected."""
        owners: Mapping[str, ConnectedOwner] = self.record.owners
        return owners

    @property
    def writers(self) -> Mapping[str, str]:
        """Session -> the party that is its writer."""
        writers: Mapping[str, str] = self.record.writers
        return writers

    def resume_of(self, owner: str) -> ResumeRecord | None:
        """What the owner has in its hands; None: nothing yet, or nothing any more."""
        return self.nodes[owner].record if self.kind_of(owner) == RESUMES.name else None
