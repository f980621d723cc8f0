"""What a Leader keeps: its claim, the durable state of its group, its members and their assignments."""

from __future__ import annotations

import msgspec

from statemachines.kernel import Fifo, Map, Status
from statemachines.shared_subscriptions.assignment import AssignmentRecord
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import Claim, Properties, Stored
from statemachines.shared_subscriptions.member import MemberRecord


class LeaderStatus(Status):
    """candidate -> loading -> waiting -> leading -> releasing -> resigned, and to resigned from everywhere."""

    CANDIDATE = "candidate"
    LOADING = "loading"
    WAITING = "waiting"
    LEADING = "leading"
    RELEASING = "releasing"
    RESIGNED = "resigned"


CANDIDATE, LOADING, WAITING, LEADING, RELEASING, RESIGNED = LeaderStatus
SERVING = (WAITING, LEADING)
CLAIMED = (LOADING, WAITING, LEADING)
HOLDING = (LOADING, WAITING, LEADING, RELEASING)


class Trial(msgspec.Struct, frozen=True, gc=False):
    """The commit that is on its way, or whose outcome is open: request `n`, when it was sent, what it puts.
    `check_n`: the read that finds out (0: none); `release`: it gives the claim up."""

    n: int
    sent_at_ns: int
    claim: Claim
    root: int
    staged: tuple[tuple[str, int], ...] = ()
    release: bool = False
    check_n: int = 0


class LeaderRecord(msgspec.Struct, frozen=True):
    """One leader of one (group, filter).

    `start_ns`: where a group that this leader declares begins, in store time (-1: now); `number`: of the last request
    to a store; `claim`, `root`: as last committed; `grace`: someone's lease from before may still hold.
    `streams`: progress of each listed stream (of an assigned one: when it was granted); `loaded`: durable progress of
    streams not listed so far; `staged`: progress not yet committed; `live`: listed streams that have not ended.
    `free`: streams nobody holds; `wanting`: members below their share, in turn.
    """

    id: str
    group: str
    filter: str
    configuration: Configuration
    start_ns: int = -1
    status: LeaderStatus = CANDIDATE
    number: int = 0
    epoch: int = 0
    grace: bool = False
    found: Stored | None = None
    claim: Stored | None = None
    root: Stored | None = None
    root_known: bool = False
    properties: Properties | None = None
    load_n: int = 0
    list_n: int = 0
    trial: Trial | None = None
    staged: Map[str, int] = Map()
    loaded: Map[str, int] = Map()
    streams: Map[str, int] = Map()
    live: int = 0
    members: Map[str, MemberRecord] = Map()
    registration: int = 0
    assignments: Map[str, AssignmentRecord] = Map()
    grant: int = 0
    free: Fifo = Fifo()
    wanting: Fifo = Fifo()

    def key(self, name: str) -> str:
        """The key of one of the group's records in the group store."""
        return f"{self.group}/{self.filter}:{name}"
