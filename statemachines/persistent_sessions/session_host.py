"""SessionHost: the machines of one node of sessions.

What it decides is the declared process `SESSION_HOST`; here are the calls of its driver, each an event of that process,
and what may be read of it.  No input or output of its own: a driver, or a simulator, performs what comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from statemachines.kernel import Message, Outgoing, ProcessRunner
from statemachines.kernel.node import Observer
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.life_record import KEEP, Connect
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import Puback, Pubcomp, Pubrec
from statemachines.persistent_sessions.resume_record import ResumeRecord
from statemachines.persistent_sessions.session_host_owners import list_followed
from statemachines.persistent_sessions.session_host_parties import RESUMES
from statemachines.persistent_sessions.session_host_process import SESSION_HOST
from statemachines.persistent_sessions.session_host_record import (
    WRITERS_MAX,
    CommitAcknowledged,
    ConnectClient,
    ConnectedOwner,
    HandMessages,
    LeaveClient,
    LoseClient,
    RoutedMessage,
    RowsSeen,
    SessionHostRecord,
    TakeAcknowledgements,
    Undelivered,
)
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow_record import LinkLost, WriterDown


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
