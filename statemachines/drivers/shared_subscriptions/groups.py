"""Groups: declare one, or destroy it, from an application or from the command line.

declared = await declare("$shared/workers/#", store="messages.db", start="beginning")
await destroy("$shared/workers/#", store="messages.db")
for group in await list_groups(store="messages.db"):
    print(group.subscription, group.order, group.leader)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from statemachines.drivers.clock import LOOK_AGAIN_S, steady_ns
from statemachines.drivers.shared_subscriptions.open_stores import open_store_patiently, open_stores, path_of
from statemachines.drivers.shared_subscriptions.store import RecordDatabase
from statemachines.drivers.sql.awaited import ONE_OPERATION_S
from statemachines.kernel import Ask, Call, ConfigurationError, Effect, Event, Node, Tell
from statemachines.shared_subscriptions.claim import PAGE
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group import (
    GROUP,
    DeclarationRefused,
    Declare,
    Destroy,
    GroupDeclared,
    GroupDestroyed,
    GroupRecord,
    check_dead_letters,
    make_difference_error,
    order_of,
    start_of,
)
from statemachines.shared_subscriptions.group_store import (
    Commit,
    Committed,
    FailingMessage,
    Order,
    Scan,
    Scanned,
    StoredRecord,
    record_key,
)
from statemachines.shared_subscriptions.listing import GroupListing, ListedGroup
from statemachines.shared_subscriptions.names import FAILING
from statemachines.shared_subscriptions.stream_store import parse_filter

Told = TypeVar("Told", bound=Event)


async def declare(
    subscription: str,
    *,
    store: str | Path,
    start: str | int = "now",
    order: Order | None = None,
    configuration: Configuration | None = None,
) -> GroupDeclared:
    """Declare the group of `subscription` unless it is declared; it begins at `start`: "now", "beginning" (everything
    stored), or nanoseconds of store time.  `order`: "strict", or "relaxed", where a message that is given back does not
    keep back those behind it in its stream (None: as the group was declared, or strict).

    Raises `ConfigurationError` for a malformed subscription, start or order, where the group lives by other times or
    was declared with another order, or where its filter matches the dead-letter topic of the configuration;
    `StoreAway` or `StoreUnavailable` where the store is not there within half a minute.
    """
    declaration = Declare(start_of(start), order_of(order))
    return await _operate(subscription, store, configuration, declaration, GroupDeclared)


async def destroy(
    subscription: str, *, store: str | Path, configuration: Configuration | None = None
) -> GroupDestroyed:
    """Destroy the group of `subscription`: its members are invalidated, its progress is removed.  When this returns
    nothing is delivered any more; that takes until its leader has noticed and every lease has ended.

    Raises `ConfigurationError` where the store is a file that is not there: none is made to destroy a group in it."""
    return await _operate(subscription, store, configuration, Destroy(), GroupDestroyed)


async def list_groups(*, store: str | Path) -> list[ListedGroup]:
    """All groups of the store, by their subscriptions, whoever declared them: applications, `gapless group declare`,
    and MQTT clients that subscribe to `$share/GROUP/FILTER`.

    Raises `ConfigurationError` where the store is a file that is not there, or cannot be read now."""
    listing = GroupListing()
    async with _open_groups("groups", store) as groups:
        while not listing.is_over:
            (answer,) = await groups.ask(listing.request)
            listing = listing.take(answer)
    return sorted(listing.found, key=lambda one: one.subscription)


class ParkedStream(msgspec.Struct, frozen=True):
    """A stream that is given to nobody: its message `offset` was handed over `count` times and not acknowledged."""

    stream: str
    offset: int
    count: int
    is_skipped: bool
    """Somebody has said that the group is to go on; its leader has not looked yet."""


async def list_parked(subscription: str, *, store: str | Path) -> list[ParkedStream]:
    """The parked streams of the group of `subscription`, by their names."""
    parse_filter(subscription)
    async with _open_groups(subscription, store) as groups:
        found = [(stream, stored) async for stream, stored in _scan_failing(groups, subscription)]
    return [_show_parked(stream, stored) for stream, stored in found]


async def skip(subscription: str, stream: str, *, store: str | Path) -> ParkedStream:
    """Let the group of `subscription` go on behind the message that `stream` is parked at; its leader does so within
    `renew_streams`.

    Raises `ConfigurationError` where the stream is not parked.
    """
    parse_filter(subscription)
    async with _open_groups(subscription, store) as groups:
        found = {name: stored async for name, stored in _scan_failing(groups, subscription)}
        if stream not in found:
            rule = f"is not parked; there are: {', '.join(sorted(found)) or 'none'}"
            raise ConfigurationError("stream", stream, rule)
        stored = found[stream]
        assert isinstance(stored.value, FailingMessage)
        key = record_key(*parse_filter(subscription), f"{FAILING}{stream}")
        marked = replace(stored.value, skip=True)
        (answer,) = await groups.ask(Commit(1, ((key, stored),), ((key, marked),)))
        if not isinstance(answer, Committed):
            raise ConfigurationError("stream", stream, "was not skipped: it has just changed, or the store is busy")
    return _show_parked(stream, StoredRecord(marked, 0))


@asynccontextmanager
async def _open_groups(who: str, store: str | Path, *, makes: bool = False) -> AsyncIterator[RecordDatabase]:
    path = path_of(store)
    if path is not None and not makes and not path.exists():
        raise ConfigurationError("store", str(path), "there is no such file, so there is no group in it")
    groups, streams = await open_store_patiently(open_stores, store, who=who, patience_s=ONE_OPERATION_S)
    try:
        yield groups
    finally:
        await groups.close()
        await streams.close()


async def _scan_failing(groups: RecordDatabase, subscription: str) -> AsyncIterator[tuple[str, StoredRecord]]:
    prefix, after = record_key(*parse_filter(subscription), FAILING), ""
    while True:
        (answer,) = await groups.ask(Scan(1, prefix, after, PAGE))
        if not isinstance(answer, Scanned):
            raise ConfigurationError("store", subscription, "cannot be read now; try again")
        for key, stored in answer.records:
            if isinstance(stored.value, FailingMessage) and stored.value.parked:
                yield key[len(prefix) :], stored
        if not answer.more:
            return
        after = answer.records[-1][0]


def _show_parked(stream: str, stored: StoredRecord) -> ParkedStream:
    value = stored.value
    assert isinstance(value, FailingMessage)
    return ParkedStream(stream, value.progress, value.count, value.skip)


async def _operate(
    subscription: str, store: str | Path, configuration: Configuration | None, operation: Call, outcome: type[Told]
) -> Told:
    ours = (configuration or Configuration()).check()
    group, topic_filter = parse_filter(subscription)
    if isinstance(operation, Declare):
        check_dead_letters(ours, topic_filter)
    async with _open_groups(subscription, store, makes=isinstance(operation, Declare)) as groups:
        node = Node(GROUP, GroupRecord("group", group, topic_filter, ours), name="group", now_ns=steady_ns())
        told = await _drive(node, groups, node.feed(operation, steady_ns()))
    if isinstance(told, DeclarationRefused):
        raise make_difference_error(ours, told.properties)
    assert isinstance(told, outcome)
    return told


async def _drive(node: Node[GroupRecord], groups: RecordDatabase, effects: list[Effect]) -> Event:
    """Perform what the machine wants, one request at a time, until it tells the outcome."""
    while True:
        if not effects:
            deadline = node.deadline()
            assert deadline is not None, "it waits for nothing"
            while (left_ns := deadline - steady_ns()) > 0:
                await asyncio.sleep(min(left_ns / 1e9, LOOK_AGAIN_S))
            effects = node.fire(steady_ns())
            continue
        effect, *effects = effects
        if isinstance(effect, Tell):
            return effect.event
        if isinstance(effect, Ask):
            for answer in await groups.ask(effect.request):  # type: ignore[arg-type]
                effects += node.feed(answer, steady_ns())
