"""GroupMembership: brings messages of groups into the sessions of a node (source: "A session serves private and shared
streams"; PS-260 to PS-269).

    stream of a group --lease--> member --PutCarried--> the node's writer for the session --Written--> acknowledged

While a session is live here it has a member of each group that it subscribes.  A `group_member` decides for each: what
it asks is carried out here, with the payloads.

Returned batch: messages of sessions that have ended, which go to members of their group again.

GroupUpkeep: gives members what sessions that have ended never acknowledged, and ends groups without sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final, NamedTuple

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.persistent_sessions.group_host import Groups
from statemachines.drivers.persistent_sessions.group_rows import (
    CountWaiting,
    DeclareGroup,
    ForgetGroup,
    ListIdleGroups,
    ReadGroups,
    ReadReturned,
)
from statemachines.drivers.persistent_sessions.host_requests import PutCarried, ReadStoreTime
from statemachines.drivers.persistent_sessions.outbox import UnstoredMessage, UnstoredMessages, call_behind
from statemachines.drivers.persistent_sessions.payloads import (
    PAYLOAD_MAX,
    Payload,
    SharedOrigin,
    SharedTerms,
    name_group,
    split_terms,
)
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.route_rows import FrontSubscribed, Subscribe, SubscribeFront
from statemachines.drivers.shared_subscriptions.deliveries import Delivered, Deliveries
from statemachines.drivers.shared_subscriptions.groups import destroy
from statemachines.kernel import Answer, Ask, ConfigurationError, Effect, Event, GaplessError, Node, Request, Tell
from statemachines.persistent_sessions import group_member_record as m
from statemachines.persistent_sessions.group_member import GROUP_MEMBER
from statemachines.persistent_sessions.group_member_actions import has_room
from statemachines.persistent_sessions.message import Publish
from statemachines.persistent_sessions.session_host_record import MatchedMessage
from statemachines.shared_subscriptions.stream_store import parse_filter


class ReturnedMessage(NamedTuple):
    """A message of a session that has ended."""

    topic: str
    payload: bytes
    head: bytes | None
    origin: SharedOrigin


Batch = Deliveries | tuple[ReturnedMessage, ...]
"""Messages of a stream, or of sessions that have ended."""

logger = logging.getLogger("gapless")

CARRIED_MAX: Final = m.STORED_MAX
"""Messages of one subscription that are stored for a session and not in its client's hands; and, of one stream, that
are fetched and not stored yet."""

HANDED_OUT_S: Final = 0.01
"""So long it is counted what clients were handed, before members hear of it: each alone is room for one message, and a
transaction."""

PIECE_BYTES: Final = 2**20
"""Bytes of payload that are stored in one go; one message may be larger."""

NOT_LIVE: Final = "the session is not connected here any more"


class SessionMember:
    """A session that is live here, and a filter of a group that it subscribes; `machine` decides for it."""

    def __init__(self, owner: str, session: str, token: int, topic_filter: str, *, is_bounded: bool) -> None:
        self.owner = owner
        self.session = session
        self.filter = topic_filter
        self.handed_out = 0
        """How many were handed to the client that the machine has not heard of."""
        self.label = ""
        """Of this membership among those of the node: each time that it joins it has another one."""
        record = m.GroupMemberRecord(topic_filter, token, is_bounded=is_bounded, most=CARRIED_MAX)
        self.machine = Node(GROUP_MEMBER, record, name=f"{owner} {topic_filter}", now_ns=steady_ns())
        self.events: asyncio.Queue[tuple[Event, Batch | None, str]] = asyncio.Queue()
        """What it is told, with messages that came, and under which label."""
        self.batches: deque[Batch] = deque()
        """What the group has given, and was not acknowledged."""
        self.joined: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """"" when the group is declared and this is a member; or why it is none."""
        self.tasks: set[asyncio.Task[None]] = set()
        """What it has asked, and is not answered."""

    @property
    def waiting(self) -> int:
        """How many of its messages are stored, and were not handed to the client."""
        return self.machine.record.waiting

    def feed(self, event: Event, batch: Batch | None = None) -> None:
        """Tell it, when its turn has come."""
        self.events.put_nowait((event, batch, self.label))

    def answer(self, why: str) -> None:
        """Whoever waits for it to join hears that it has (""), or why it has not; the first answer counts."""
        if not self.joined.done():
            self.joined.set_result(why)

    async def take_next(self) -> list[Effect]:
        """What comes of the next event, or of a timer that is due.  Messages that came before it left are none of
        its own any more."""
        deadline = self.machine.deadline()
        try:
            async with asyncio.timeout(None if deadline is None else max(0, deadline - steady_ns()) / 1e9):
                event, batch, label = await self.events.get()
        except TimeoutError:
            return self.machine.fire(steady_ns())
        if batch is not None:
            if label != self.label:
                return []
            self.batches.append(batch)
        return self.machine.feed(event, steady_ns())


class GroupMembership:
    """`groups` as the node was given them; `name` of the node, its `desk`, and `messages` on their way into the
    database; `is_denied(owner, filter)`: its client may not subscribe it; `refuse(owner, filter, why)`: it does not any
    more; `fail` ends the node, where nothing helps."""

    def __init__(
        self,
        groups: Groups,
        name: str,
        desk: RequestQueue,
        messages: UnstoredMessages,
        is_denied: Callable[[str, str], bool],
        refuse: Callable[[str, str, str], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._consumer = groups.consumer(name, CARRIED_MAX)
        self._desk = desk
        self._messages = messages
        self._is_denied = is_denied
        self._refuse = refuse
        self._fail = fail
        self._is_open = False
        self._closed = False
        self._some = asyncio.Event()
        self._live: dict[str, dict[str, SessionMember]] = {}
        """By owner and filter."""
        self._labels: dict[str, SessionMember] = {}
        self._joins = 0
        self._serving: dict[SessionMember, asyncio.Task[None]] = {}
        """All that are not gone."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: dict[type[Request], Callable[[SessionMember, Any], Coroutine[Any, Any, Answer]]] = {
            m.DeclareMemberGroup: self._declare,
            m.JoinGroup: self._join,
            m.CountStored: self._count,
            m.ReadTime: self._read_time,
            m.StorePiece: self._store_piece,
            m.FindWaiter: self._find_waiter,
        }
        self._at_once: dict[type[Request], Callable[[SessionMember, Any], Coroutine[Any, Any, None]]] = {
            m.AcknowledgePiece: self._acknowledge,
            m.LeaveGroup: self._leave_group,
        }
        """What needs no answer, in the order in which it is asked."""
        self._tells: dict[type[Event], Callable[[SessionMember, Any], None]] = {
            m.MemberJoined: lambda member, event: member.answer(""),
            m.MemberRefused: self._log_refusal,
            m.MemberOver: lambda member, event: member.answer(NOT_LIVE),
            m.GroupLost: lambda member, event: self._refuse(member.owner, member.filter, event.why),
        }
        self.carried = 0
        """Messages that were stored."""
        self.too_large = 0
        """Messages that no session can be sent: they count as dealt with, and the log says so."""

    # -- its life -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled; raises what ends a consumer."""
        try:
            await self._consumer.__aenter__()
            self._is_open = True
            for member in self._serving:
                member.feed(m.GroupsOpened())
            while True:
                self._some.clear()
                async for batch in self._consumer.batches(CARRIED_MAX):
                    taker = self._labels.get(batch[0].subscription)
                    if taker is not None:
                        self.give(taker, batch)
                await self._some.wait()
        finally:
            await self._stop()

    async def close(self) -> None:
        """In good order: every member leaves, having acknowledged what is stored."""
        for owner in list(self._live):
            self.end(owner)
        await asyncio.gather(*self._serving.values(), return_exceptions=True)
        if self._is_open and not self._closed:
            self._closed = True
            await self._consumer.__aexit__(None, None, None)

    async def _stop(self) -> None:
        """As if the process had died, unless it was closed: nothing is said to anybody."""
        is_open = self._is_open and not self._closed
        self._closed = True
        tasks = (*self._serving.values(), *self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if is_open:
            await self._consumer.abort()

    def _spawn(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        tasks.add(task)

        def note_end(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._fail(error)

        task.add_done_callback(note_end)
        return task

    # -- sessions -------------------------------------------------------------------------------------------------

    def begin(self, owner: str, session: str, token: int) -> None:
        """A session is live here: its members begin."""
        self._live[owner] = {}
        self.renew(owner, session, token)

    def renew(self, owner: str, session: str, token: int) -> None:
        """Members begin for filters of the session that have none, and that its client may subscribe."""

        def take(found: tuple[str, ...]) -> None:
            for one in found if owner in self._live else ():
                if one not in self._live[owner] and not self._is_denied(owner, one):
                    self._enter(owner, session, token, one).feed(m.RouteStored())

        self._desk.give(ReadGroups(session), take)

    def subscribe(
        self, owner: str, asked: Subscribe, take: Callable[[bool | None], None], refuse: Callable[[str], None]
    ) -> None:
        """The session subscribes a filter of a group: `take` hears that it does, as `Subscribe` is answered, when it is
        a member of the group; `refuse`, why it is none.  Raises `ConfigurationError` for what is malformed."""
        parse_filter(asked.filter)
        member = self._live.get(owner, {}).get(asked.filter)
        if member is None:
            is_bounded = isinstance(asked, SubscribeFront)
            member = self._enter(owner, asked.session, asked.token, asked.filter, is_bounded)
        self._spawn(self._confirm(member, asked, take, refuse), self._tasks)

    async def _confirm(
        self,
        member: SessionMember,
        asked: Subscribe,
        take: Callable[[bool | None], None],
        refuse: Callable[[str], None],
    ) -> None:
        why = await asyncio.shield(member.joined)
        if why:
            refuse(why)
            return
        answer = await self._desk.ask(asked)
        done = answer.done if isinstance(answer, FrontSubscribed) else answer
        member.feed(m.RouteStored() if done else m.EndMember())
        take(done)

    def leave(self, owner: str, topic_filter: str) -> None:
        """The session subscribes it no longer: what of it is not stored is for others."""
        member = self._live.get(owner, {}).pop(topic_filter, None)
        if member is not None:
            member.feed(m.EndMember())  # it may be subscribed again before this one is gone

    def end(self, owner: str) -> None:
        """The session is not live here any more."""
        for member in self._live.pop(owner, {}).values():
            member.feed(m.EndMember())

    def give_up(self) -> None:
        """The store of sessions does not answer: every member leaves, and waits for nothing that is being stored.  What
        is stored all the same was not acknowledged to the group, and comes again from there (PS-332)."""
        self._live.clear()
        for member in self._serving:
            member.feed(m.AbandonMember())
        for task in list(self._tasks):
            task.cancel()

    def list_members(self) -> dict[str, list[SessionMember]]:
        """Group -> who takes part in it here, and has room."""
        found: dict[str, list[SessionMember]] = {}
        for one in self._labels.values():
            if has_room(one.machine.record):
                found.setdefault(name_group(one.filter), []).append(one)
        return found

    def give(self, member: SessionMember, batch: Batch) -> None:
        """Give messages to a member, which stores them for its session."""
        member.feed(m.MessagesCame(len(batch)), batch)

    def hand_out(self, owner: str, message: Publish) -> None:
        """A message of a group goes to the client.  Those that come again have done so before the session is live."""
        member = self._live.get(owner, {}).get(message.filter)
        if member is not None:
            member.handed_out += 1
            if member.handed_out == 1:
                asyncio.get_running_loop().call_later(HANDED_OUT_S, self._tell_handed_out, member)

    def _tell_handed_out(self, member: SessionMember) -> None:
        handed_out, member.handed_out = member.handed_out, 0
        for _ in range(handed_out):
            member.feed(m.HandedOut())

    def _enter(
        self, owner: str, session: str, token: int, topic_filter: str, is_bounded: bool = False
    ) -> SessionMember:
        member = SessionMember(owner, session, token, topic_filter, is_bounded=is_bounded)
        self._live.setdefault(owner, {})[topic_filter] = member
        self._serving[member] = self._spawn(self._serve(member), set())
        if self._is_open:
            member.feed(m.GroupsOpened())
        return member

    # -- one of them ----------------------------------------------------------------------------------------------

    async def _serve(self, member: SessionMember) -> None:
        """Until it is gone."""
        try:
            while not member.machine.stopped:
                for effect in await member.take_next():
                    await self._perform(member, effect)
        finally:
            self._forget(member)

    async def _perform(self, member: SessionMember, effect: Effect) -> None:
        match effect:
            case Ask(_, request):
                if type(request) in self._at_once:
                    await self._at_once[type(request)](member, request)
                else:
                    self._spawn(self._answer(member, request), member.tasks)
            case Tell(event):
                self._tells[type(event)](member, event)

    async def _answer(self, member: SessionMember, request: Request) -> None:
        member.feed(await self._answers[type(request)](member, request))

    def _forget(self, member: SessionMember) -> None:
        self._serving.pop(member, None)
        self._labels.pop(member.label, None)
        for task in list(member.tasks):
            task.cancel()
        live = self._live.get(member.owner, {})
        if live.get(member.filter) is member:
            del live[member.filter]
        member.answer(NOT_LIVE)

    # -- what it asks ---------------------------------------------------------------------------------------------

    def _log_refusal(self, member: SessionMember, event: m.MemberRefused) -> None:
        logger.warning("%s: session %s is no member of the group: %s", member.filter, member.session, event.why)
        member.answer(event.why)

    async def _declare(self, member: SessionMember, asked: m.DeclareMemberGroup) -> Answer:
        return m.MemberDeclared(await self._desk.ask(DeclareGroup(member.session, member.filter)))

    async def _acknowledge(self, member: SessionMember, asked: m.AcknowledgePiece) -> None:
        """The first messages of the first batch."""
        batch = member.batches.popleft()
        if isinstance(batch, Deliveries):  # what came back is removed in the transaction that stores it
            await batch[: asked.count].ack()
        if batch[asked.count :]:
            member.batches.appendleft(batch[asked.count :])

    async def _leave_group(self, member: SessionMember, asked: m.LeaveGroup) -> None:
        self._labels.pop(member.label, None)
        member.batches.clear()
        if not self._closed:
            with suppress(ConfigurationError):  # it is no member
                self._consumer.leave(member.label)
        member.label = ""

    async def _find_waiter(self, member: SessionMember, asked: m.FindWaiter) -> Answer:
        return m.WaiterFound(self._consumer.is_taken_back(member.label))

    async def _count(self, member: SessionMember, asked: m.CountStored) -> Answer:
        count = await self._desk.ask(CountWaiting(member.session, member.filter, CARRIED_MAX))
        self._tell_handed_out(member)  # what was handed out by now is not counted, and is no more room behind it
        return m.StoredCounted(count)

    async def _read_time(self, member: SessionMember, asked: m.ReadTime) -> Answer:
        return m.TimeRead(await self._desk.ask(ReadStoreTime()))

    async def _store_piece(self, member: SessionMember, asked: m.StorePiece) -> Answer:
        return await self._store(member, first_of(member.batches[0], asked.most))

    async def _join(self, member: SessionMember, asked: m.JoinGroup) -> Answer:
        self._joins += 1
        member.label = f"{self._joins} {member.filter}"
        self._labels[member.label] = member
        try:
            await self._consumer.subscribe(member.filter, label=member.label)
        except GaplessError as error:
            return m.GroupJoined(str(error))
        self._some.set()
        return m.GroupJoined()

    async def _store(self, member: SessionMember, piece: Batch) -> Answer:
        """As rows of the session; returns when they are there."""
        found = [(self._messages.new_message(), *one) for one in self._split(member, piece)]
        messages = tuple((message, payload) for message, payload, _, _ in found)
        at = member.machine.record
        qos = await self._desk.ask(PutCarried(member.session, at.token, member.filter, messages))
        if qos is None:
            return m.PieceRefused()
        all_stored = asyncio.Event()
        note_stored = call_behind(len(messages), all_stored.set)
        for message, payload, terms, origin in found:
            handed = [MatchedMessage(member.session, member.filter, min(qos, terms.qos), terms.until_ns)]
            unstored = UnstoredMessage(payload, note_stored, origin=origin)
            self._messages.hand(message, unstored, handed, at.since_ns)
        if messages:
            await all_stored.wait()
        self.carried += len(messages)
        return m.PieceStored(len(piece), len(messages))

    def _split(self, member: SessionMember, piece: Batch) -> Iterator[tuple[Payload, SharedTerms, SharedOrigin]]:
        """Each message that fits: as it was published, with its terms, and where it is from."""
        group = name_group(member.filter)
        for one in self._without_large(piece):
            payload, terms = split_terms(Payload(one.topic, one.payload, one.head))
            origin = one.origin if isinstance(one, ReturnedMessage) else SharedOrigin(group, one.stream, one.offset)
            yield payload, terms, origin

    def _without_large(self, piece: Batch) -> Iterator[Delivered | ReturnedMessage]:
        for one in piece:
            size = size_of(one)
            if size <= PAYLOAD_MAX:
                yield one
            else:
                self.too_large += 1
                what = "a message of %s has %d bytes, and a session is sent at most %d: dropped, %d so far"
                logger.warning(what, one.topic, size, PAYLOAD_MAX, self.too_large)


def size_of(message: Delivered | ReturnedMessage) -> int:
    """Bytes of its payload and head."""
    return len(message.payload) + len(message.head or b"")


def first_of(batch: Batch, most: int) -> Batch:
    """At most so many of the first, and no more bytes than are stored in one go, but one in any case."""
    sizes = accumulate(map(size_of, batch))
    count = sum(size <= PIECE_BYTES for size in sizes)
    return batch[: max(1, min(count, most))]


LOOK_S: Final = 1.0
"""How often it is looked for messages that came back."""

GIVE_AGAIN_NS: Final = 10 * 10**9
"""A message that was given to a member, and is not stored for its session after so long, is given to another."""

CHECKS: Final = 20
"""How often within its expiry it is looked whether a group has sessions."""

CHECK_S_MAX: Final = 60.0


class GroupUpkeep:
    """`members` of the node, whose `desk` asks the database; `groups`: where they are; `clock`: steady."""

    def __init__(self, members: GroupMembership, groups: Groups, desk: RequestQueue, clock: Clock = steady_ns) -> None:
        self._members = members
        self._groups = groups
        self._desk = desk
        self._clock = clock
        self._given: dict[str, int] = {}
        """Message -> until when it is the member's that it was given to."""
        self._turn = 0

    async def give_returned(self) -> None:
        """Again and again: what came back goes to the members here."""
        while True:
            await asyncio.sleep(LOOK_S)
            members = self._members.list_members()
            if not members:
                continue
            found = await self._desk.ask(ReadReturned(tuple(sorted(members))))
            there = {message for its in found.values() for message, _ in its}
            self._given = {one: until for one, until in self._given.items() if one in there}
            for group, its in found.items():
                self._give(group, its, members[group])

    def _give(self, group: str, its: Sequence[tuple[str, Payload]], filters: Sequence[Any]) -> None:
        now_ns = self._clock()
        wanted = [(name, one) for name, one in its if self._given.get(name, 0) <= now_ns]
        if not wanted:
            return
        self._turn += 1
        member = filters[self._turn % len(filters)]
        self._given |= dict.fromkeys((message for message, _ in wanted), now_ns + GIVE_AGAIN_NS)
        batch = tuple(ReturnedMessage(*one, SharedOrigin(group, "", 0, message)) for message, one in wanted)
        self._members.give(member, batch)

    async def end_idle(self) -> None:
        """Again and again: groups that only subscriptions declared end, where no session has them for long."""
        expiry_s = self._groups.expiry_s
        while True:
            await asyncio.sleep(min(expiry_s / CHECKS, CHECK_S_MAX))
            for topic_filter in await self._desk.ask(ListIdleGroups(round(expiry_s * 1_000))):
                await self._end(topic_filter)

    async def _end(self, topic_filter: str) -> None:
        try:
            await destroy(topic_filter, store=self._groups.store, configuration=self._groups.configuration)
        except GaplessError as error:
            logger.warning("%s could not be ended, and is tried again: %s", topic_filter, error)
            return
        await self._desk.ask(ForgetGroup(topic_filter))
        logger.info("%s has ended: no session has subscribed it for %g s", topic_filter, self._groups.expiry_s)
