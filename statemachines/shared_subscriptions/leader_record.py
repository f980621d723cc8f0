"""What a Leader keeps: its claim, the durable state of its group, its members and their assignments."""

from __future__ import annotations

import msgspec

from statemachines.kernel import Fifo, Map, Status
from statemachines.shared_subscriptions.assignment import AssignmentRecord
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import Claim, FailingMessage, Properties, StoredRecord, record_key
from statemachines.shared_subscriptions.member import MemberRecord
from statemachines.shared_subscriptions.message import Ranges


class LeaderStatus(Status):
    """candidate -> loading -> waiting -> leading -> releasing -> resigned, and to resigned from everywhere; a candidate
    follows while somebody else holds the claim."""

    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LOADING = "loading"
    WAITING = "waiting"
    LEADING = "leading"
    RELEASING = "releasing"
    RESIGNED = "resigned"


CANDIDATE, FOLLOWER, LOADING, WAITING, LEADING, RELEASING, RESIGNED = LeaderStatus
LOOKING = (CANDIDATE, FOLLOWER)
SERVING = (WAITING, LEADING)
CLAIMED = (LOADING, WAITING, LEADING)
HOLDING = (LOADING, WAITING, LEADING, RELEASING)


Staged = int | FailingMessage | None
"""Progress that is to be committed: a number, alone; with failures of the message there (none: they are removed); None:
both are removed.  A progress below 0 is removed."""


class Trial(msgspec.Struct, frozen=True, gc=False):
    """The commit that is on its way, or whose outcome is open: request `n`, when it was sent, what it puts (of a claim
    that is taken no root).
    `check_n`: the read that finds out (0: none); `release`: it gives the claim up."""

    n: int
    sent_at_ns: int
    claim: Claim
    root: int = 0
    staged: tuple[tuple[str, Staged], ...] = ()
    release: bool = False
    check_n: int = 0


class KnownStream(msgspec.Struct, frozen=True, gc=False):
    """A stream of the group: where its next owner begins (of an assigned one: where its owner began), its rank, and
    how far it goes as far as the store has said: `count` messages, and whether it has `ended`; `repeats` as in a
    `Grant`."""

    progress: int
    shard: int
    generation: int
    count: int = 0
    ended: bool = False
    repeats: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """(shard, generation)."""
        return self.shard, self.generation


class Rank(msgspec.Struct, frozen=True, gc=False):
    """The streams of one generation of one shard: `live` of them have not ended; they are granted once it is `open`."""

    streams: Map[str, bool] = Map()
    live: int = 0
    open: bool = False


class UncoveredProgress(msgspec.Struct, frozen=True, gc=False):
    """Progress that nothing that is known of the store covers: `borrower` said it of its `grant` ("": an earlier leader
    committed it, and nobody is asked).  `n`: the request that asks the store (0: not asked yet); `free`: nobody holds
    the stream any more, it only waits for that answer."""

    borrower: str
    grant: int
    progress: int
    finished: bool = False
    n: int = 0
    free: bool = False
    failed: int = 0
    in_hand: bool = False
    acked: Ranges = ()
    reason: str = ""


class OpenLetter(msgspec.Struct, frozen=True, gc=False):
    """The dead letter that is asked for, of the message at `progress`: request `n` (0: it was refused); `failures`: so
    many were refused in a row."""

    n: int
    stream: str
    progress: int
    failures: int = 0


class LeaderRecord(msgspec.Struct, frozen=True):
    """One leader of one (group, filter).

    `number`: of the last request to a store; `claim`, `root`: as last committed, `properties`: as read; `found`: the
    claim as a candidate or follower found it last, and first at `found_at_ns`; `ripe`: when the read under way was
    sent, that was a TTL ago; `willing`: and `not_before_ns` had passed, before which no claim is taken (0: any time);
    `grace`: someone's lease from before may still hold; `holder`: the leader it follows ("": it knows none);
    `askers`: borrowers that asked before it could answer.
    `heard`: how many members had a ping answered; `asked`: none has, and somebody registered since that is so;
    `failures`: listings that failed, one after the other, where it is not `alone` (no other host is known); `unfit`: it
    gives the claim up since it cannot serve.
    `repeats`: earlier leaders' members may have had messages behind their progress in hand; `repeat_n`: the last
    request before the last grant of a stream of which nobody knows how far its earlier owners came.
    `streams`: what is listed; `ranks`: by (shard, generation); `oldest`: generations before it are gone; `generation`:
    the one appended to when the listing under way began; `loaded`: durable progress of streams not listed so far.
    `staged`: progress not yet committed (None: to be removed); `live`: streams of open ranks that have not ended.
    `free`: streams nobody holds (some may have vanished since); `wanting`: members below their share, in turn.
    `held`: progress that is not believed yet, by stream; `measure_n`: the request that asks about some of it (0: none).
    `failing`: streams whose next message failed, or of which more is acknowledged, as the store has it or will have it;
    `parked_n`: the request that looks whether somebody lets parked ones go on; `letter`: the dead letter that is asked
    for.
    """

    id: str
    group: str
    filter: str
    configuration: Configuration
    status: LeaderStatus = CANDIDATE
    number: int = 0
    epoch: int = 0
    grace: bool = False
    found: StoredRecord | None = None
    found_at_ns: int = 0
    ripe: bool = False
    not_before_ns: int = 0
    willing: bool = True
    claim: StoredRecord | None = None
    root: StoredRecord | None = None
    root_known: bool = False
    properties: StoredRecord | None = None
    holder: str = ""
    askers: Map[str, bool] = Map()
    load_n: int = 0
    list_n: int = 0
    trial: Trial | None = None
    staged: Map[str, Staged] = Map()
    loaded: Map[str, int] = Map()
    streams: Map[str, KnownStream] = Map()
    ranks: Map[tuple[int, int], Rank] = Map()
    generation: int = 0
    oldest: int = 0
    live: int = 0
    members: Map[str, MemberRecord] = Map()
    registration: int = 0
    heard: int = 0
    asked: bool = False
    alone: bool = False
    failures: int = 0
    unfit: bool = False
    assignments: Map[str, AssignmentRecord] = Map()
    grant: int = 0
    free: Fifo = Fifo()
    wanting: Fifo = Fifo()
    held: Map[str, UncoveredProgress] = Map()
    measure_n: int = 0
    failing: Map[str, FailingMessage] = Map()
    parked_n: int = 0
    letter: OpenLetter | None = None
    repeats: bool = False
    repeat_n: int = 0

    @property
    def is_relaxed(self) -> bool:
        """The group was declared so: a message that is given back with a delay does not keep back those behind it."""
        found = self.properties
        return found is not None and isinstance(found.value, Properties) and found.value.order == "relaxed"

    def find_acked(self, stream: str) -> Ranges:
        """What is acknowledged behind the progress of the stream."""
        failing = self.failing.get(stream)
        return () if failing is None else failing.acked

    def key(self, name: str) -> str:
        """The key of one of the group's records in the group store."""
        return record_key(self.group, self.filter, name)
