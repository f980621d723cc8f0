"""LeaderNode: a leader host as a process: a registry over TCP, with its stores.

    async with LeaderNode(listen=("127.0.0.1", 7411), store="messages.db") as node:
        await node.wait_for_failure()

On leaving, every leader commits what it has and gives its claim up.

LeaderStarts: leaders of groups begin as the group store keeps up, so that those which lead are served meanwhile.

Anybody that may connect may ask for leaders of groups that nobody has declared, and each of them reads the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeGuard

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.loop_watchdog import LoopWatchdog
from statemachines.drivers.node import REAL, NodeEnvironment
from statemachines.drivers.opening import closed_on_failure
from statemachines.drivers.port import Feed, serve_replies
from statemachines.drivers.runtime import Runtime
from statemachines.drivers.shared_subscriptions.milestones import Milestones
from statemachines.drivers.shared_subscriptions.node_life import begin_node_life
from statemachines.drivers.shared_subscriptions.open_stores import (
    OpenStores,
    directory_of,
    open_store_patiently,
    open_stores,
    split_store,
)
from statemachines.drivers.shared_subscriptions.roles import LEADER
from statemachines.drivers.tcp import Address
from statemachines.kernel import Answer, ConfigurationError, Event, Outgoing, Superseded, node_of
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.dead_letter import DeadLettersRefused, LetterUnwritten
from statemachines.shared_subscriptions.failed_deliveries import MessageDropped, StreamParked
from statemachines.shared_subscriptions.message import END_OF_STREAM, LeaderWanted, ToLeaderHost, check_sender
from statemachines.shared_subscriptions.progress_cover import ProgressRefused, StreamBehind
from statemachines.shared_subscriptions.registry import Registry, find_malformed
from statemachines.trace.log import TraceLog
from statemachines.wire import quote_for_log

REQUESTS_MAX: Final = 16
"""While the store has more requests to carry out, no leader begins."""
WAITING_MAX: Final = 1_000
"""So many questions for a leader wait; one more is dropped, and its borrower asks again."""


class LeaderQuestion(NamedTuple):
    """A message that would begin a leader."""

    sender: str
    to: str
    message: LeaderWanted


class LeaderStarts:
    """`ask`: of the group store; `begin(question)` lets the host take the message."""

    def __init__(
        self, ask: Callable[[Any], Awaitable[Iterable[Answer]]], begin: Callable[[LeaderQuestion], None]
    ) -> None:
        self._ask = ask
        self._begin = begin
        self._requests = 0
        self._waiting: dict[str, LeaderQuestion] = {}
        """By the borrower that asks, in their order."""

    def serve(self, party: str, request: Any, feed: Feed) -> Awaitable[None]:
        """The group store, as a service of the host."""
        self._requests += 1
        return self._carry_out(party, request, feed)

    async def _carry_out(self, party: str, request: Any, feed: Feed) -> None:
        try:
            answers = await self._ask(request)
        finally:
            self._requests -= 1
        for answer in answers:
            feed(party, answer)
        while self._waiting and self._requests < REQUESTS_MAX:
            self._begin(self._waiting.pop(next(iter(self._waiting))))

    def keep(self, question: LeaderQuestion) -> bool:
        """Whether it waits, or is dropped; else it begins now."""
        if self._requests < REQUESTS_MAX:
            return False
        borrower = question.message.borrower
        if borrower in self._waiting or len(self._waiting) < WAITING_MAX:
            self._waiting[borrower] = question
        return True


logger = logging.getLogger("gapless")

HALT_S = 3.0
"""Leaders that have not given their claim up by then keep it until it expires."""

GIVE_IT_TIME: Final = (
    "its members lose their leases meanwhile; give it a process and processor time of its own, or the group a longer "
    "ping_interval and ping_timeout"
)
"""What an operator does about a leader host that stands still."""


PARKED: Final = (
    "%s: %s is parked at message %d, which was handed over %d times and not acknowledged; it is given to nobody until"
    " %ssomebody says `gapless group skip`"
)
LETTER_AWAITED: Final = {False: "", True: "its dead letter is stored, or "}
DROPPED: Final = (
    "%s: message %d of %s was handed over %d times and not acknowledged; %s, and the group goes on behind it"
)


LETTERED: Final = (
    "%s: message %d of %s was handed over %d times and not acknowledged; its dead letter is in %s, and the group"
    " goes on behind it"
)
UNWRITTEN: Final = (
    "%s: the dead letter of message %d of %s cannot be stored in %s (%d failures in a row): %s; the stream waits, and"
    " the letter is tried again after each listing"
)
OWN_LETTERS: Final = (
    "%s: the group %s is to read %s, which matches its dead-letter topic %s: its streams are parked instead; choose a"
    " dead_letter_topic that the filter does not match"
)


def read_to(progress: int) -> str:
    """A progress, for people."""
    return "of its end" if progress == END_OF_STREAM else str(progress)


class LeaderNode:
    """`listen`: (host, port), port 0 for any; `store`: path or URL of the database with both stores
    ("messages.db;leaders.db": of two); `peers`: the other
    leader hosts over the same stores: a group is led by one of them, and whoever is asked passes borrowers on to it;
    `credentials`: what consumers must prove, and what we show them.  The rest as for `SharedSession`."""

    def __init__(
        self,
        *,
        listen: tuple[str, int],
        store: str | Path,
        node: str | None = None,
        state: str | Path | None = None,
        trace: str | Path | None = None,
        configuration: Configuration | None = None,
        number: int | None = None,
        peers: Sequence[Address] = (),
        credentials: Credentials = NONE,
        environment: NodeEnvironment = REAL,
    ) -> None:
        self._log: TraceLog | None = None
        self._environment = environment
        credentials.listening()  # raises what is wrong with them
        credentials.check_peers(peers, LEADER.name)
        self.credentials = credentials
        self.configuration = (configuration or Configuration()).check()
        if self.configuration.dead_letter_topic and len(set(split_store(store))) > 1:
            rule = "needs both stores in one database: a dead letter and the progress behind it are one commit"
            raise ConfigurationError("dead_letter_topic", self.configuration.dead_letter_topic, rule)
        self._name = node
        self.node = node or ""
        self._listen = listen
        self._where = store
        self._state = Path(state) if state is not None else directory_of(store)
        self._trace = None if trace is None else Path(trace)
        self._number = number
        self._peers = {f"leader:{place}": address for place, address in enumerate(peers, 1)}
        self.refused = 0
        """Reports of progress that were not believed."""

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._transport.address

    async def __aenter__(self) -> LeaderNode:
        make = self._environment.open_stores or open_stores
        stores: OpenStores = await open_store_patiently(make, self._where, who=self._name or "leader")
        self._groups, self._streams = stores
        async with closed_on_failure(self._close):
            await self._begin_life()
        return self

    async def _begin_life(self) -> None:
        environment = self._environment
        self._life = await begin_node_life(
            self._groups,
            environment,
            self.configuration,
            name=self._name,
            kind="leader",
            state=self._state,
            trace=self._trace,
            number=self._number,
        )
        life = self._life.life
        self.node = node_of(life.name)
        self._log = life.log
        lease_ns = self.configuration.lease_ms * MS
        standing = LoopWatchdog(self.node, lease_ns, environment.steady_ns, GIVE_IT_TIME)
        self._starts = LeaderStarts(
            self._groups.ask, lambda question: self._runtime.act(partial(self._host.receive, *question))
        )
        self._runtime = Runtime(
            life.name,
            life.number,
            {
                group_store.SERVICE: self._starts.serve,
                stream_store.SERVICE: serve_replies(self._streams.ask),
            },
            handle=self._handle,
            answered=lambda party, answer, now: self._host.feed(party, answer, now),
            route_tell=self._route_tell,
            log=self._log,
            clock=environment.steady_ns,
            offset_ns=environment.time_ns() - environment.steady_ns(),
            observe=environment.observe,
            refused=environment.refused,
            standing=standing,
        )
        milestones = Milestones(self.node, self._runtime.observe)
        self._host = Registry(life.name, self.configuration, alone=not self._peers, observe=milestones.observe)
        self._transport = environment.transport(
            life=life.name,
            role=LEADER,
            receive=self._runtime.receive,
            listen=self._listen,
            dial=self._peers,
            credentials=self.credentials,
            store=self._groups.identity,
        )
        self._runtime.attach(self._host, self._transport)
        await self._transport.__aenter__()
        self._life.hold(self._runtime)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._runtime.failed is None or isinstance(self._runtime.failed, Superseded):
            await self._halt()
            await self._life.give_back()
        await self.abort()

    async def abort(self) -> None:
        """Stop as if the process had died: no claim is given up.  In place of leaving the `async with`."""
        await self._life.end()
        await self._runtime.close()
        await self._transport.__aexit__(None, None, None)
        await self._close()

    async def _close(self) -> None:
        """Stores and log."""
        await self._groups.close()
        await self._streams.close()
        if self._log is not None:
            self._log.close()

    @property
    def machines(self) -> Registry:
        """The machines of this host, to be looked at."""
        return self._host

    async def wait_for_failure(self) -> None:
        """Wait until the node cannot go on, and raise why."""
        await self._runtime.wait_for_failure()

    async def _halt(self) -> None:
        self._runtime.run(self._host.close)
        loop = asyncio.get_running_loop()
        end = loop.time() + HALT_S
        while self._host.nodes and loop.time() < end:
            await asyncio.sleep(0.01)

    def _handle(self, sender: str, to: str, message: ToLeaderHost, now_ns: int) -> list[Outgoing]:
        check_sender(sender, to, message, self._transport.is_peer_of(LEADER.name, sender))
        if self._begins_leader(message) and self._starts.keep(LeaderQuestion(sender, to, message)):
            return []
        return self._host.receive(sender, to, message, now_ns)

    def _begins_leader(self, message: ToLeaderHost) -> TypeGuard[LeaderWanted]:
        if type(message) is not LeaderWanted or find_malformed(message) is not None:
            return False
        return (message.group, message.filter) not in self._host.record.leaders

    def _route_tell(self, party: str, event: Event) -> None:
        """What an operator must know; a leader that resigned is followed by another at the next `leader_wanted`."""
        match event:
            case ProgressRefused(_, borrower, stream, grant, progress, count):
                self.refused += 1
                what = (
                    "%s: refused progress %s of %s by grant %d from %s, which is not a member any more: the store has"
                )
                mend = " %d messages; if this goes on, it may be of another store, or no gapless node"
                told = (read_to(progress), quote_for_log(stream), grant, quote_for_log(borrower), count)
                logger.warning(what + mend, self.node, *told)
            case StreamBehind(_, stream, progress, count):
                what = "%s: %s is not granted: progress %s was committed, and the store has %d messages; one of the two"
                mend = " was restored: restore both to the same moment, or destroy the group and declare it anew"
                logger.error(what + mend, self.node, quote_for_log(stream), read_to(progress), count)
            case StreamParked(_, stream, progress, count):
                awaited = LETTER_AWAITED[self.configuration.dead_letter_topic != ""]
                logger.error(PARKED, self.node, quote_for_log(stream), progress, count, awaited)
            case MessageDropped(_, stream, progress, count, _, topic) if topic:
                logger.warning(LETTERED, self.node, progress, quote_for_log(stream), count, quote_for_log(topic))
            case LetterUnwritten(_, stream, progress, failures, why):
                if failures.bit_count() == 1:  # twice as rarely each time
                    topic = quote_for_log(self.configuration.dead_letter_topic)
                    logger.error(UNWRITTEN, self.node, progress, quote_for_log(stream), topic, failures, why)
            case DeadLettersRefused(_, group, topic_filter, topic):
                logger.error(OWN_LETTERS, self.node, *map(quote_for_log, (group, topic_filter, topic)))
            case MessageDropped(_, stream, progress, count, asked):
                why = "it was skipped" if asked else "it was dropped"
                logger.warning(DROPPED, self.node, progress, quote_for_log(stream), count, why)
