"""GroupMembership: brings messages of groups into the sessions of a node (source: "A session serves private and shared
streams"; PS-260 to PS-269).

    stream of a group --lease--> member --PutCarried--> the node's writer for the session --Written--> acknowledged

While a session is live here it has a member of each group that it subscribes.  What the member gets is stored as rows
of the session, in the order of the stream, and only then acknowledged to the group: from there on it is the session's,
as if it had been published for it alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import Any, Final, TypeVar

from statemachines.drivers.persistent_sessions.groups import Groups
from statemachines.drivers.persistent_sessions.host_request import (
    CountWaiting,
    DeclareGroup,
    FrontSubscribed,
    PutCarried,
    ReadGroups,
    ReadStoreTime,
    Subscribe,
    SubscribeFront,
)
from statemachines.drivers.persistent_sessions.payloads import PAYLOAD_MAX, Payload
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.returned_batch import ReturnedBatch, ReturnedMessage
from statemachines.drivers.persistent_sessions.shared_message_codec import (
    SharedOrigin,
    SharedTerms,
    name_group,
    split_terms,
)
from statemachines.drivers.persistent_sessions.unstored_messages import Unstored, UnstoredMessages
from statemachines.drivers.shared_subscriptions.deliveries import Delivered, Deliveries
from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.persistent_sessions.message import Publish
from statemachines.persistent_sessions.session_host_record import Handed
from statemachines.persistent_sessions.shared_group import WAIT_FOR_END
from statemachines.shared_subscriptions.stream_store import parse_filter

T = TypeVar("T")

Batch = Deliveries | ReturnedBatch
"""Messages of a stream, or of sessions that have ended."""

logger = logging.getLogger("gapless")

CARRIED_MAX: Final = 100
"""Messages of one subscription that are stored for a session and not in its client's hands; and, of one stream, that
are fetched and not stored yet."""

PIECE_BYTES: Final = 2**20
"""Bytes of payload that are stored in one go; one message may be larger."""

GONE: Final = "the session is not connected here any more"

LOOK_S: Final = 0.25
"""How often it is looked whether another waits for a stream, where there is no room; each time but some it is ..."""

LOOKS: Final = 4
"""... looked in the database, too, whether there is room: after so many, and then after twice as many, ..."""

LOOKS_MAX: Final = 240
"""... and in the end after so many more each time."""


class Carrying:
    """A session that is live here, and a filter of a group that it subscribes: `label` of its member; `waiting`: how
    many of its messages are stored, and were not handed to the client."""

    def __init__(self, owner: str, session: str, token: int, topic_filter: str, number: int) -> None:
        self.owner = owner
        self.session = session
        self.token = token
        self.filter = topic_filter
        self.label = f"{number} {topic_filter}"
        self.waiting = 0
        self.since_ns = 0
        """What other nodes had stored for the session by then comes before what is stored here."""
        self.batches: asyncio.Queue[Deliveries | ReturnedBatch] = asyncio.Queue()
        self.handed_out = asyncio.Event()
        self.routed = asyncio.Event()
        """The session subscribes it, as far as the database knows."""
        self.joined: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """"" when the group is declared and this is a member; or why it is none."""
        self.over = asyncio.Event()
        self.is_bounded = False
        """A front subscribes it: where that declares the group, the group is bounded, and ends."""

    @property
    def has_room(self) -> bool:
        """Whether its session may be given more, as far as is known."""
        return self.routed.is_set() and not self.over.is_set() and self.waiting < CARRIED_MAX


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
        self._opened = asyncio.Event()
        self._closed = False
        self._some = asyncio.Event()
        self._live: dict[str, dict[str, Carrying]] = {}
        """By owner and filter."""
        self._labels: dict[str, Carrying] = {}
        self._members = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.carried = 0
        """Messages that were stored."""
        self.too_large = 0
        """Messages that no session can be sent: they count as dealt with, and the log says so."""

    # -- its life -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled; raises what ends a consumer."""
        try:
            await self._consumer.__aenter__()
            self._opened.set()
            while True:
                self._some.clear()
                async for batch in self._consumer.batches(CARRIED_MAX):
                    carrying = self._labels.get(batch[0].subscription)
                    if carrying is not None:
                        carrying.batches.put_nowait(batch)
                await self._some.wait()
        finally:
            await self._stop()

    async def close(self) -> None:
        """In good order: every member leaves, having acknowledged what is stored."""
        for owner in list(self._live):
            self.end(owner)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._opened.is_set() and not self._closed:
            self._closed = True
            await self._consumer.__aexit__(None, None, None)

    async def _stop(self) -> None:
        """As if the process had died, unless it was closed: nothing is said to anybody."""
        is_open = self._opened.is_set() and not self._closed
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if is_open:
            await self._consumer.abort()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def note_end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._fail(error)

        task.add_done_callback(note_end)

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
                    self._enter(owner, session, token, one).routed.set()

        self._desk.give(ReadGroups(session), take)

    def subscribe(
        self, owner: str, asked: Subscribe, take: Callable[[bool | None], None], refuse: Callable[[str], None]
    ) -> None:
        """The session subscribes a filter of a group: `take` hears that it does, as `Subscribe` is answered, when it is
        a member of the group; `refuse`, why it is none.  Raises `ConfigurationError` for what is malformed."""
        parse_filter(asked.filter)
        carrying = self._live.get(owner, {}).get(asked.filter)
        if carrying is None:
            is_bounded = isinstance(asked, SubscribeFront)
            carrying = self._enter(owner, asked.session, asked.token, asked.filter, is_bounded)
        self._spawn(self._confirm(carrying, asked, take, refuse))

    async def _confirm(
        self, carrying: Carrying, asked: Subscribe, take: Callable[[bool | None], None], refuse: Callable[[str], None]
    ) -> None:
        why = await asyncio.shield(carrying.joined)
        if why:
            refuse(why)
            return
        answer = await self._desk.ask(asked)
        done = answer.done if isinstance(answer, FrontSubscribed) else answer
        if done:
            carrying.routed.set()
        else:
            carrying.over.set()
        take(done)

    def leave(self, owner: str, topic_filter: str) -> None:
        """The session subscribes it no longer: what of it is not stored is for others."""
        carrying = self._live.get(owner, {}).pop(topic_filter, None)
        if carrying is not None:
            carrying.over.set()  # it may be subscribed again before this one is gone

    def end(self, owner: str) -> None:
        """The session is not live here any more."""
        for carrying in self._live.pop(owner, {}).values():
            carrying.over.set()

    def give_up(self) -> None:
        """The store of sessions does not answer: every member leaves, and waits for nothing that is being stored.  What
        is stored all the same was not acknowledged to the group, and comes again from there (PS-332)."""
        for owner in list(self._live):
            self.end(owner)
        for task in list(self._tasks):
            task.cancel()

    def list_members(self) -> dict[str, list[Carrying]]:
        """Group -> who takes part in it here, and has room."""
        found: dict[str, list[Carrying]] = {}
        for one in self._labels.values():
            if one.has_room:
                found.setdefault(name_group(one.filter), []).append(one)
        return found

    def hand_out(self, owner: str, message: Publish) -> None:
        """A message of a group goes to the client.  Those that come again have done so before the session is live."""
        carrying = self._live.get(owner, {}).get(message.filter)
        if carrying is not None:
            carrying.waiting = max(0, carrying.waiting - 1)
            carrying.handed_out.set()

    def _enter(self, owner: str, session: str, token: int, topic_filter: str, is_bounded: bool = False) -> Carrying:
        self._members += 1
        carrying = Carrying(owner, session, token, topic_filter, self._members)
        carrying.is_bounded = is_bounded
        self._live.setdefault(owner, {})[topic_filter] = carrying
        self._labels[carrying.label] = carrying
        self._spawn(self._serve(carrying))
        return carrying

    # -- one of them ----------------------------------------------------------------------------------------------

    async def _serve(self, carrying: Carrying) -> None:
        """A member, until it is over; what is being stored by then is waited for, and acknowledged."""
        try:
            await self._comes(carrying, self._opened.wait())
            while await self._join(carrying) and await self._carry(carrying):
                self._consumer.leave(carrying.label)
                carrying.batches = asyncio.Queue()
        finally:
            self._forget(carrying)

    def _forget(self, carrying: Carrying) -> None:
        self._labels.pop(carrying.label, None)
        live = self._live.get(carrying.owner, {})
        if live.get(carrying.filter) is carrying:
            del live[carrying.filter]
        if not carrying.joined.done():
            carrying.joined.set_result(GONE)
        if self._opened.is_set() and not self._closed:
            with suppress(ConfigurationError):  # it is no member
                self._consumer.leave(carrying.label)

    async def _comes(self, carrying: Carrying, what: Coroutine[Any, Any, T]) -> T | None:
        """What it is waited for, or None: it is over."""
        coming = asyncio.ensure_future(what)
        over = asyncio.ensure_future(carrying.over.wait())
        try:
            await asyncio.wait({coming, over}, return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() and not carrying.over.is_set() else None
        finally:
            coming.cancel()
            over.cancel()

    async def _join(self, carrying: Carrying) -> bool:
        """Whether it is a member: it is not over, and the group is declared, as we know it."""
        if carrying.over.is_set():
            return False
        refusal = await self._declare(carrying)
        try:
            if not refusal:
                await self._comes(carrying, self._consumer.subscribe(carrying.filter, label=carrying.label))
        except GaplessError as error:
            refusal = str(error)
        if refusal:
            logger.warning("%s: session %s is no member of the group: %s", carrying.filter, carrying.session, refusal)
            if carrying.routed.is_set():
                self._refuse(carrying.owner, carrying.filter, refusal)
            if not carrying.joined.done():
                carrying.joined.set_result(refusal)
            return False
        self._some.set()
        if not carrying.over.is_set() and not carrying.joined.done():
            carrying.joined.set_result("")
        return not carrying.over.is_set()

    async def _declare(self, carrying: Carrying) -> str:
        """Why the group may not be declared; one that is ending is waited for."""
        while carrying.is_bounded:
            refusal = await self._comes(carrying, self._desk.ask(DeclareGroup(carrying.session, carrying.filter)))
            if refusal != WAIT_FOR_END:
                return refusal or ""
            await self._comes(carrying, asyncio.sleep(LOOK_S))
        return ""

    async def _carry(self, carrying: Carrying) -> bool:
        """Store messages as they come, those of a stream in their order, and acknowledge what is stored.  Until it is
        over, or the session is another's, or does not subscribe them any more: False; or until another member waits for
        messages that there is no room for: True."""
        await self._comes(carrying, carrying.routed.wait())
        await self._count(carrying)
        carrying.since_ns = await self._desk.ask(ReadStoreTime())
        while (batch := await self._comes(carrying, carrying.batches.get())) is not None:
            rest = batch
            while rest:
                if not await self._has_room(carrying):
                    return not carrying.over.is_set()
                piece = first_of(rest, CARRIED_MAX - carrying.waiting)
                if not await self._store(carrying, piece):
                    return False
                await piece.ack()
                rest = rest[len(piece) :]
        return False

    async def _has_room(self, carrying: Carrying) -> bool:
        """When there is; False: it is over, or another waits.  What retention has removed, and what another owner has
        handed out, is not heard of here: so it is looked, too."""
        looks, next_count = 0, LOOKS
        while not carrying.over.is_set() and carrying.waiting >= CARRIED_MAX:
            if self._consumer.is_taken_back(carrying.label):
                return False
            carrying.handed_out.clear()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._comes(carrying, carrying.handed_out.wait())
            except TimeoutError:
                looks += 1
                if looks == next_count:
                    next_count += min(next_count, LOOKS_MAX)
                    await self._count(carrying)
        return not carrying.over.is_set()

    async def _count(self, carrying: Carrying) -> None:
        """How many of its messages wait, whoever has stored them."""
        carrying.waiting = await self._desk.ask(CountWaiting(carrying.session, carrying.filter, CARRIED_MAX))

    async def _store(self, carrying: Carrying, piece: Batch) -> bool:
        """As rows of the session; returns when they are there."""
        found = [(self._messages.new_message(), *one) for one in self._split(carrying, piece)]
        messages = tuple((message, payload) for message, payload, _, _ in found)
        qos = await self._desk.ask(PutCarried(carrying.session, carrying.token, carrying.filter, messages))
        if qos is None:
            return False
        carrying.waiting += len(messages)
        all_stored = asyncio.Event()
        left = {message for message, _ in messages}

        def stored(message: str) -> None:
            left.discard(message)
            if not left:
                all_stored.set()

        for message, payload, terms, origin in found:
            handed = [Handed(carrying.session, carrying.filter, min(qos, terms.qos), terms.until_ns)]
            unstored = Unstored(payload, partial(stored, message), origin=origin)
            self._messages.hand(message, unstored, handed, carrying.since_ns)
        if messages:
            await all_stored.wait()
        self.carried += len(messages)
        return True

    def _split(self, carrying: Carrying, piece: Batch) -> Iterator[tuple[Payload, SharedTerms, SharedOrigin]]:
        """Each message that fits: as it was published, with its terms, and where it is from."""
        group = name_group(carrying.filter)
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
