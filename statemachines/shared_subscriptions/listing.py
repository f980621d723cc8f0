"""Listing: how a Leader learns which streams its group has, which generation's turn it is, and what has vanished.

Streams are listed in pages, when loading and every `renew_streams`.  Of each shard only the lowest generation that has
not been read to its end is open: its streams are shared, those of later ones wait.  A generation is opened at the end
of a listing only, and only if the store was appending to it, or to a later one, when that listing began: what belongs
to the generations before it was all there by then (source: "General Idea").

Group listing: the groups of a store, one request after the other.

A group has a few records, and two for each of its streams.  Those of streams lie between its claim and its root, so a
listing finds the first record of a group, reads the few, and goes on behind the root.

Standby: what is in the place of a borrower while its session cannot read the stream store, or keeps a message for
too long.

    waiting -> over

The subscription goes on, and asks no leader for streams: one that were granted to it would stand still.  When a read of
the session succeeds the next borrower begins.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Answer,
    Ask,
    Call,
    ConfigurationError,
    Effects,
    Event,
    Fsm,
    Map,
    Row,
    SetTimer,
    Status,
    Stop,
    Tell,
    TimerFired,
    TraceColumns,
    in_order,
    keys_in_order,
    node_of,
)
from statemachines.shared_subscriptions.acknowledged_ranges import find_reach
from statemachines.shared_subscriptions.assignment import Vanish
from statemachines.shared_subscriptions.borrower import Destroyed, OnDisconnect, OnUnsubscribe, Start
from statemachines.shared_subscriptions.claim import PAGE, can_commit, idle_later, keep_page, look_later, stage
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.dead_letter_queue import look_and_ask
from statemachines.shared_subscriptions.failed_deliveries import (
    look_at_parked,
    note_skips,
    parked_streams,
    settle_parked,
)
from statemachines.shared_subscriptions.group_store import (
    Claim,
    FailingMessage,
    Order,
    Properties,
    Read,
    ReadDone,
    Scan,
    Scanned,
)
from statemachines.shared_subscriptions.leader_record import (
    LEADING,
    LOADING,
    KnownStream,
    LeaderRecord,
    Rank,
    UncoveredProgress,
)
from statemachines.shared_subscriptions.membership import Outcome
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.names import CLAIM, PROPERTIES, ROOT, record_key, record_name
from statemachines.shared_subscriptions.plan import Draft, hand_out, reassign
from statemachines.shared_subscriptions.progress_cover import StreamBehind, covers
from statemachines.shared_subscriptions.stream_store import (
    SERVICE,
    FetchFailed,
    ListStreams,
    StreamInfo,
    StreamsListed,
    rank_of,
)

FAILURES_MAX = 3
"""After so many listings that failed in a row a leader gives its claim up to another host."""


class RenewTimer(TimerFired, frozen=True, gc=False):
    """Look for new streams."""


# -- guards ---------------------------------------------------------------------------------------------------------


def is_listing(record: LeaderRecord, event: StreamsListed | FetchFailed) -> bool:
    return event.n == record.list_n


def is_blind(record: LeaderRecord, event: FetchFailed) -> bool:
    """So many listings have failed in a row that another host should lead."""
    is_last = record.failures + 1 >= FAILURES_MAX and not record.alone
    return is_listing(record, event) and is_last and can_commit(record, event)


def is_partial(record: LeaderRecord, event: StreamsListed) -> bool:
    return event.n == record.list_n and event.more


def is_whole_with_grace(record: LeaderRecord, event: StreamsListed) -> bool:
    return event.n == record.list_n and not event.more and record.grace


# -- asking ---------------------------------------------------------------------------------------------------------


def load_streams(record: LeaderRecord, event: Scanned, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return list_streams(keep_page(record, event), event, now_ns)


def list_streams(record: LeaderRecord, event: Event, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return list_after(replace(record, generation=-1), "")


def look_again(record: LeaderRecord, event: RenewTimer, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """New streams, and what somebody says of parked ones."""
    record, looked = look_at_parked(record)
    record, listed = list_streams(record, event, now_ns)
    return record, (*looked, *listed)


def resume_skipped(record: LeaderRecord, event: Scanned, now_ns: int) -> Outcome:
    """Parked streams go on where somebody said so."""
    draft = Draft(replace(record, parked_n=0), now_ns)
    note_skips(draft, event)
    if draft.record.status is LEADING:
        hand_out(draft)
    return draft.finish()


def list_after(record: LeaderRecord, after: str) -> tuple[LeaderRecord, Effects]:
    assert record.properties is not None
    assert isinstance(record.properties.value, Properties)
    n = record.number + 1
    asked = ListStreams(n, record.filter, record.properties.value.start_ns, after, PAGE)
    return replace(record, number=n, list_n=n), (Ask(SERVICE, asked),)


def renew_later(record: LeaderRecord, now_ns: int) -> SetTimer:
    return SetTimer("renew", now_ns + record.configuration.renew_streams_ms * MS)


def try_renew_later(record: LeaderRecord, event: FetchFailed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return count_failure(record), (renew_later(record, now_ns),)


def try_load_later(record: LeaderRecord, event: FetchFailed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return look_later(count_failure(record), event, now_ns)


def count_failure(record: LeaderRecord) -> LeaderRecord:
    """Up to the last but one; nobody counts where nobody else could lead."""
    if record.alone or record.failures + 1 >= FAILURES_MAX:
        return record
    return replace(record, failures=record.failures + 1)


# -- learning -------------------------------------------------------------------------------------------------------


def learn_page(record: LeaderRecord, event: StreamsListed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    told = (*tell_listed(record, event), *parked_streams(record, event))
    record, asked = list_after(learn(record, event), event.streams[-1].stream)
    return record, (*told, *asked)


def learn_last(record: LeaderRecord, event: StreamsListed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """All is listed; nobody is a member yet."""
    draft = Draft(learn(record, event), now_ns)
    draft.effects.extend((*tell_listed(record, event), *parked_streams(record, event)))
    end_listing(draft)
    return draft.record, (*draft.effects, renew_later(record, now_ns), idle_later(record, now_ns))


def learn_and_share(record: LeaderRecord, event: StreamsListed, now_ns: int) -> Outcome:
    """New streams are shared at once; the next page, or the next look."""
    draft = Draft(learn(record, event), now_ns)
    draft.effects.extend((*tell_listed(record, event), *parked_streams(record, event)))
    if event.more:
        draft.record, asked = list_after(draft.record, event.streams[-1].stream)
        draft.effects.extend(asked)
    else:
        end_listing(draft)
        draft.effects.append(renew_later(record, now_ns))
    if draft.record.live != record.live or draft.record.free is not record.free:
        reassign(draft)
    return draft.finish()


def learn(record: LeaderRecord, event: StreamsListed) -> LeaderRecord:
    """Streams not known so far: at their durable progress, or at the start of the group; of the others how far they
    go.  One of which more was read than is there is held."""
    streams, ranks, loaded, free, live = record.streams, record.ranks, record.loaded, record.free, record.live
    held = record.held
    oldest = max(record.oldest, event.oldest)
    for info in event.streams:
        if info.generation < oldest:
            continue
        known = before = streams.get(info.stream)
        if known is not None:
            if (info.count, info.ended) > (known.count, known.ended):
                known = replace(known, count=info.count, ended=info.ended)
            if known.repeats == END_OF_STREAM and info.stream in record.assignments and event.n > record.repeat_n:
                known = replace(known, repeats=info.count)
            streams = streams if known is before else streams.set(info.stream, known)
            continue
        known = make_known_stream(loaded, info)
        if record.repeats and record.status is LOADING:
            known = replace(known, repeats=END_OF_STREAM)
        streams = streams.set(info.stream, known)
        if is_behind(record, info.stream, known) or is_parked(record, info.stream, known):
            held = held.set(info.stream, UncoveredProgress("", 0, known.progress))
        if info.stream in loaded:
            loaded = loaded.delete(info.stream)
        rank = ranks.get(known.rank) or Rank()
        unread = known.progress != END_OF_STREAM
        ranks = ranks.set(
            known.rank, replace(rank, streams=rank.streams.set(info.stream, True), live=rank.live + unread)
        )
        if unread and rank.open:
            live += 1
            if info.stream not in held:
                free = free.push(info.stream)
    return replace(
        record,
        streams=streams,
        ranks=ranks,
        loaded=loaded,
        free=free,
        live=live,
        held=held,
        oldest=oldest,
        generation=event.generation if record.generation < 0 else record.generation,
        failures=0,
    )


def make_known_stream(loaded: Map[str, int], info: StreamInfo) -> KnownStream:
    """A stream that is new to this leader."""
    progress = max(loaded.get(info.stream, 0), info.first)
    return KnownStream(progress, info.shard, info.generation, info.count, info.ended)


def is_parked(record: LeaderRecord, stream: str, known: KnownStream) -> bool:
    """The next message failed too often, as an earlier leader has found."""
    failing = record.failing.get(stream)
    return failing is not None and failing.parked and failing.progress == known.progress


def is_behind(record: LeaderRecord, stream: str, known: KnownStream) -> bool:
    """More of it was read than the store has."""
    return not covers(known, find_reach(known.progress, record.find_acked(stream)))


def tell_listed(record: LeaderRecord, event: StreamsListed) -> tuple[Tell, ...]:
    """Each of those on this page is named once by a leader."""
    return tuple(
        Tell(StreamBehind(record.id, info.stream, known.progress, info.count))
        for info in event.streams
        if info.stream not in record.streams and info.generation >= max(record.oldest, event.oldest)
        for known in (make_known_stream(record.loaded, info),)
        if is_behind(record, info.stream, known)
    )


# -- the end of a listing -------------------------------------------------------------------------------------------


def end_listing(draft: Draft) -> None:
    """What the store has dropped is taken back; the next generation of a shard is opened when its turn has come."""
    for rank, _ in in_order(draft.record.ranks):
        if rank[1] < draft.record.oldest:
            vanish(draft, rank)
    forget_loaded(draft)
    draft.record = open_ranks(draft.record)
    settle_parked(draft)
    look_and_ask(draft, is_turn=True)


def vanish(draft: Draft, key: tuple[int, int]) -> None:
    """Nothing of this rank is there any more: it counts as complete, and its tombstones go."""
    rank = draft.record.ranks[key]
    for stream in keys_in_order(rank.streams):
        assignment = draft.record.assignments.get(stream)
        if assignment is not None:
            draft.step_assignment(stream, Vanish())
        record = draft.record
        lived = rank.open and not draft.has_ended(stream)
        held = record.held.delete(stream) if stream in record.held else record.held
        draft.record = replace(record, streams=record.streams.delete(stream), live=record.live - lived, held=held)
        remove_progress(draft, stream)
    draft.record = replace(draft.record, ranks=draft.record.ranks.delete(key))


def forget_loaded(draft: Draft) -> None:
    """The same for streams that earlier leaders knew and that we never saw."""
    for stream in keys_in_order(draft.record.loaded):
        if rank_of(stream)[1] < draft.record.oldest:
            draft.record = replace(draft.record, loaded=draft.record.loaded.delete(stream))
            remove_progress(draft, stream)


def remove_progress(draft: Draft, stream: str) -> None:
    record, nothing = draft.record, None
    if stream in record.failing:
        record, nothing = replace(record, failing=record.failing.delete(stream)), FailingMessage(-1, 0)
    draft.record, effects = stage(record, stream, nothing, draft.now_ns)
    draft.effects.extend(effects)


def open_ranks(record: LeaderRecord) -> LeaderRecord:
    """Of each shard, the lowest rank that is not complete."""
    ranks, free, live = record.ranks, record.free, record.live
    shard = -1
    for key, rank in in_order(record.ranks):
        if key[0] == shard or rank.live == 0:
            continue
        shard = key[0]
        if rank.open or key[1] > record.generation:
            continue
        ranks = ranks.set(key, replace(rank, open=True))
        live += rank.live
        for stream in keys_in_order(rank.streams):
            if record.streams[stream].progress != END_OF_STREAM and stream not in record.held:
                free = free.push(stream)
    return replace(record, ranks=ranks, free=free, live=live)


GROUPS: Final = "/"
"""How the keys of all records of groups begin."""

NAMES: Final = (PROPERTIES, CLAIM, ROOT)
"""The records of a group that say what it is; the last has the greatest key of all."""


class ListedGroup(msgspec.Struct, frozen=True):
    """A group that is declared in a store."""

    subscription: str
    """As one subscribes to it: $shared/GROUP/FILTER."""
    order: Order
    start_ns: int
    """Nanoseconds of store time; 0: everything stored."""
    leader: str
    """The node of the leader host that has the claim, or had it last without a word; "": nobody has."""
    epoch: int
    """How many leaders the group has had."""
    is_destroyed: bool
    """It is not declared any more; what is left of it is being removed."""

    def describe(self) -> str:
        """A line about it."""
        leads = f"led by {self.leader}, epoch {self.epoch}" if self.leader else "led by nobody"
        ends = ", is being destroyed" if self.is_destroyed else ""
        return f"{self.subscription}: {self.order} order, {leads}{ends}"


class GroupListing(msgspec.Struct, frozen=True):
    """`after`: the groups up to this key are listed; `key`: a record of the group that is read now ("": the next one is
    looked for); `found`: the groups so far; there may be more of them `left`."""

    after: str = GROUPS
    key: str = ""
    found: tuple[ListedGroup, ...] = ()
    left: bool = True

    @property
    def request(self) -> Scan | Read:
        """What is to be asked next."""
        return Read(1, list_keys(self.key)) if self.key else Scan(1, GROUPS, self.after, 1)

    @property
    def is_over(self) -> bool:
        """All groups were found."""
        return not self.left

    def take(self, answer: Answer) -> GroupListing:
        """What is to be asked after this answer; raises `ConfigurationError` where the store did not answer."""
        if isinstance(answer, Scanned):
            if not answer.records:
                return replace(self, left=False)
            return replace(self, key=answer.records[0][0])
        if not isinstance(answer, ReadDone):
            raise ConfigurationError("store", "groups", "cannot be read now; try again")
        found = show_group(self.key, answer)
        after = max(self.key, list_keys(self.key)[-1])
        return GroupListing(after, found=self.found if found is None else (*self.found, found))


def list_keys(key: str) -> tuple[str, ...]:
    """The keys of the few records of the group that has a record with this key."""
    group, topic_filter, _ = record_name(key)
    return tuple(record_key(group, topic_filter, one) for one in NAMES)


def show_group(key: str, answer: ReadDone) -> ListedGroup | None:
    """The group whose few records these are; None: it is not declared."""
    group, topic_filter, _ = record_name(key)
    properties, claim = (None if one is None else one.value for one in answer.records[:2])
    if not isinstance(properties, Properties):
        return None
    held = claim if isinstance(claim, Claim) else Claim("", 0)
    return ListedGroup(
        f"$shared/{group}/{topic_filter}",
        properties.order,
        properties.start_ns,
        node_of(held.leader) if held.leader else "",
        held.epoch,
        properties.destroyed,
    )


class Resume(Call, frozen=True, gc=False):
    """From the Handler: the session can read again."""


class Suspended(Event, frozen=True, gc=False):
    """To the application: the streams of `subscription` were given back, since `stream`, and others with it, could not
    be read, or (`is_late`) since a message of `stream` was not acknowledged in time."""

    columns: ClassVar = TraceColumns(key="stream")

    subscription: str
    stream: str
    is_late: bool = False


class Resumed(Event, frozen=True, gc=False):
    """To the application: `subscription` takes part again, since `stream` was read, or since the application asks for
    messages."""

    columns: ClassVar = TraceColumns(key="stream")

    subscription: str
    stream: str
    is_late: bool = False


class DeliveriesRevoked(Event, frozen=True, gc=False):
    """To the application: what was delivered for `owner` is not its any more, since a message was not acknowledged in
    time."""

    owner: str


class StandbyStatus(Status):
    """Whether the session cannot read yet."""

    WAITING = "waiting"
    OVER = "over"


WAITING, OVER = StandbyStatus


class StandbyRecord(msgspec.Struct, frozen=True, gc=False):
    """One subscription.  `stream`: one that could not be read; `epoch`: the highest that the borrower has seen."""

    id: str
    subscription: str
    stream: str
    epoch: int = 0
    status: StandbyStatus = WAITING
    is_late: bool = False


def tell_suspended(record: StandbyRecord, event: Start, now_ns: int) -> tuple[StandbyRecord, Effects]:
    return record, (Tell(Suspended(record.subscription, record.stream, record.is_late)),)


def resume(record: StandbyRecord, event: Resume, now_ns: int) -> tuple[StandbyRecord, Effects]:
    told = Resumed(record.subscription, record.stream, record.is_late)
    return record, (Tell(told), Tell(Destroyed(record.id, True, record.epoch)), Stop())


def go(record: StandbyRecord, event: Event, now_ns: int) -> tuple[StandbyRecord, Effects]:
    return record, (Tell(Destroyed(record.id, False, record.epoch)), Stop())


# fmt: off
ROWS = (
    #   on             from     to    do              when  clause
    Row(Start,         WAITING, STAY, tell_suspended, None, "SS-293"),
    Row(Resume,        WAITING, OVER, resume,         None, "SS-294"),
    Row(OnUnsubscribe, WAITING, OVER, go,             None, "SS-295"),
    Row(OnDisconnect,  WAITING, OVER, go,             None, "SS-295"),
)
# fmt: on

STANDBY = Fsm(
    "standby",
    protocol="shared_subscriptions",
    record=StandbyRecord,
    states=StandbyStatus,
    initial=WAITING,
    final=(OVER,),
    rows=ROWS,
)
