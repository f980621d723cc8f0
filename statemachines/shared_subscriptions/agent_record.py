"""What the process of a session keeps of its subscriptions, of the claims that they rely on, and of borrowers that are
gone; and the calls that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, Literal

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Call, LookAt, Map, Status, TraceColumns, in_order
from statemachines.shared_subscriptions.configuration import Configuration, Detours
from statemachines.shared_subscriptions.group_store import Order
from statemachines.shared_subscriptions.message import Report, ToConsumer
from statemachines.shared_subscriptions.private_subscription import NOW
from statemachines.shared_subscriptions.stream import StreamLink

LAST_WORDS_MAX: Final = 64
"""Of so many borrowers that are gone a session remembers what they said last."""

DOUBTED_MAX: Final = 64
"""So many messages of leaders that the claim may name by now wait, for each group; older ones are dropped, as a network
may."""

SUBSCRIPTIONS_MAX: Final = 1_000
"""A session has no more subscriptions than this, those counted that are still finishing."""

BUFFER: Final = 256
"""Messages per stream that may be fetched ahead of what is acknowledged, where nobody says otherwise."""

Place = tuple[str, str]
"""(group, filter)"""


class SharedFilter(msgspec.Struct, frozen=True, gc=False):
    """What a client subscribes to together with others: `$shared/GROUP/FILTER`.  `at_delivery`: messages are
    acknowledged when they are handed over (fire and forget); `start_ns`: where the group begins if this declares it,
    in store time (0: everything stored; -1: now); `order`: of its messages, as in a `Declare`."""

    group: str
    filter: str
    at_delivery: bool = False
    start_ns: int = -1
    order: Order | Literal[""] = ""


class Private(msgspec.Struct, frozen=True, gc=False):
    """What a client subscribes to alone: streams whose topic matches `filter` ("" = only those in `progress`).

    `start_ns`: where streams begin that are there already, `BEGINNING`, `NOW` or a time of the store; `progress`:
    stream -> next offset to read, as `ReadTo` told it in an earlier life.  `at_delivery` as for `Shared`.
    """

    filter: str
    start_ns: int = NOW
    progress: Map[str, int] = Map()
    at_delivery: bool = False


class SubscribeShared(Call, frozen=True, gc=False):
    """The application subscribes together with others; the id of the subscription is the next running number."""

    wanted: SharedFilter


class SubscribeAlone(Call, frozen=True, gc=False):
    """The application subscribes alone."""

    wanted: Private


class EndSubscription(Call, frozen=True, gc=False):
    """Finish what is in hand of the subscription, then end it."""

    subscription: str


class LeaveSubscription(Call, frozen=True, gc=False):
    """Say what is known of the subscription, and end it at once."""

    subscription: str


class LeaveAll(Call, frozen=True, gc=False):
    """The session goes: the same for every subscription."""


class GroupReady(Call, frozen=True, gc=False):
    """The group that `party` was to declare is declared."""

    party: str


class Undeclarable(Call, frozen=True, gc=False):
    """The group that `party` was to declare lives by other times."""

    party: str


class ClaimFound(Call, frozen=True, gc=False):
    """`witness` has read the claim: it names `leader` under `epoch` ("": nobody)."""

    columns: ClassVar = TraceColumns(term="epoch")

    witness: str
    leader: str
    epoch: int


class BorrowerView(msgspec.Struct, frozen=True, gc=False):
    """What a process sees of a borrower: whom it follows, and the highest epoch that it knows."""

    link: StreamLink | None
    epoch: int


class CheckLink(LookAt, frozen=True, gc=False):
    """To itself: the claim was read; whether this borrower follows somebody else."""


class HearDoubted(Call, frozen=True, gc=False):
    """To itself: the claim of this group and filter was read; what waited for that is heard, or never."""

    place: Place


class AgentStatus(Status):
    """A session has one state: it is there."""

    OPEN = "open"


OPEN = AgentStatus.OPEN


class ServedSubscription(msgspec.Struct, frozen=True, gc=False):
    """A subscription.  `number` in its id; `group`: "" for one that shares with nobody; `party` that serves it at the
    moment, of this `kind`; `turn`: when that began, as a running number."""

    number: int
    group: str
    filter: str
    at_delivery: bool
    party: str
    kind: str
    turn: int

    @property
    def place(self) -> Place:
        """What it is to."""
        return self.group, self.filter


class ClaimKnown(msgspec.Struct, frozen=True, gc=False):
    """The claim of a group and filter as its `witness` has read it last; `doubted`: what waits until it is read again,
    with its senders, the latest of it."""

    witness: str
    leader: str = ""
    epoch: int = 0
    doubted: tuple[tuple[str, ToConsumer], ...] = ()

    def doubt(self, sender: str, message: ToConsumer, most: int) -> ClaimKnown:
        """With one more that waits, of the latest `most`."""
        return replace(self, doubted=(*self.doubted, (sender, message))[-most:])


class LastWords(msgspec.Struct, frozen=True, gc=False):
    """What a borrower that is gone said last."""

    borrower: str
    reports: tuple[Report, ...]


class AgentRecord(msgspec.Struct, frozen=True, gc=False):
    """A session.

    `id`: the life of the process; `registries`: the nodes where leaders are found; `buffer` of its session, if it has
    one; `doubted_max`: so many messages of leaders wait for a claim; `number`, `declarations`,
    `witnesses`, `turn`: running numbers; `recreated`: how many borrowers had to end themselves; `subscriptions` that
    have not ended, by id; `parties`: party -> subscription; `claims`, and `places`: witness -> its key among them;
    `words` of borrowers that are gone, the oldest first; `detours` to leaders; `unread`: a stream that cannot be read,
    while nothing can be (""); `late`: a stream of which a message was not acknowledged in time, while the application
    asks for nothing ("").
    """

    id: str
    registries: tuple[str, ...]
    configuration: Configuration
    buffer: int = 0
    doubted_max: int = DOUBTED_MAX
    status: AgentStatus = OPEN
    number: int = 0
    declarations: int = 0
    witnesses: int = 0
    turn: int = 0
    recreated: int = 0
    subscriptions: Map[str, ServedSubscription] = Map()
    parties: Map[str, str] = Map()
    claims: Map[Place, ClaimKnown] = Map()
    places: Map[str, Place] = Map()
    words: tuple[LastWords, ...] = ()
    detours: Detours = Detours()
    unread: str = ""
    late: str = ""

    @property
    def is_away(self) -> bool:
        """The session can read nothing, or its application takes nothing."""
        return self.unread != "" or self.late != ""

    def serve(self, subscription: str, party: str, kind: str) -> AgentRecord:
        """The subscription is served by this party from now on."""
        known = self.subscriptions[subscription]
        turn = self.turn + 1
        parties = self.parties.delete(known.party) if known.party in self.parties else self.parties
        served = self.subscriptions.set(subscription, replace(known, party=party, kind=kind, turn=turn))
        detours = self.detours.drop(known.party)
        parties = parties.set(party, subscription)
        return replace(self, turn=turn, subscriptions=served, parties=parties, detours=detours)

    def end(self, party: str) -> AgentRecord:
        """The subscription that the party served has ended."""
        subscriptions = self.subscriptions.delete(self.parties[party])
        detours = self.detours.drop(party)
        return replace(self, subscriptions=subscriptions, parties=self.parties.delete(party), detours=detours)

    def remember(self, borrower: str, reports: tuple[Report, ...]) -> AgentRecord:
        """Its last words, if it had any."""
        return replace(self, words=(*self.words, LastWords(borrower, reports))[-LAST_WORDS_MAX:]) if reports else self

    def words_of(self, borrower: str) -> tuple[Report, ...]:
        """What a borrower that is gone said last."""
        return next((one.reports for one in self.words if one.borrower == borrower), ())

    def kind_of(self, party: str) -> str:
        """What kind of party serves a subscription ("": it serves none, or is gone)."""
        subscription = self.parties.get(party)
        return "" if subscription is None else self.subscriptions[subscription].kind

    def served_by(self, *kinds: str) -> Iterator[ServedSubscription]:
        """The subscriptions that parties of these kinds serve, in the order in which those began."""
        served = [one for _, one in in_order(self.subscriptions) if one.kind in kinds]
        return iter(sorted(served, key=lambda one: one.turn))

    def in_order(self) -> list[tuple[str, ServedSubscription]]:
        """All subscriptions, by their numbers."""
        return sorted(in_order(self.subscriptions), key=lambda pair: pair[1].number)
