"""Groups: declare one, or destroy it, from an application or from the command line.

declared = await declare("$shared/workers/#", store="messages.db", start="beginning")
await destroy("$shared/workers/#", store="messages.db")
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeVar

from statemachines.drivers.clock import LOOK_AGAIN_S, steady_ns
from statemachines.drivers.shared_subscriptions.open_stores import open_store_patiently, open_stores, path_of
from statemachines.drivers.shared_subscriptions.store import GroupStore
from statemachines.kernel import Ask, Call, ConfigurationError, Effect, Event, Node, Tell
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group import (
    GROUP,
    DeclarationRefused,
    Declare,
    Destroy,
    GroupDeclared,
    GroupDestroyed,
    GroupRecord,
    differing,
    start_of,
)
from statemachines.shared_subscriptions.stream_store import parse_filter

Told = TypeVar("Told", bound=Event)


async def declare(
    subscription: str, *, store: str | Path, start: str | int = "now", configuration: Configuration | None = None
) -> GroupDeclared:
    """Declare the group of `subscription` unless it is declared; it begins at `start`: "now", "beginning" (everything
    stored), or nanoseconds of store time.

    Raises `ConfigurationError` for a malformed subscription or start, or where the group lives by other times.
    """
    return await _operate(subscription, store, configuration, Declare(start_of(start)), GroupDeclared)


async def destroy(
    subscription: str, *, store: str | Path, configuration: Configuration | None = None
) -> GroupDestroyed:
    """Destroy the group of `subscription`: its members are invalidated, its progress is removed.  When this returns
    nothing is delivered any more; that takes until its leader has noticed and every lease has ended.

    Raises `ConfigurationError` where the store is a file that is not there: none is made to destroy a group in it."""
    path = path_of(store)
    if path is not None and not path.exists():
        raise ConfigurationError("store", str(path), "there is no such file, so there is no group in it")
    return await _operate(subscription, store, configuration, Destroy(), GroupDestroyed)


async def _operate(
    subscription: str, store: str | Path, configuration: Configuration | None, operation: Call, outcome: type[Told]
) -> Told:
    ours = (configuration or Configuration()).check()
    group, topic_filter = parse_filter(subscription)
    groups, streams = await open_store_patiently(open_stores, store, who=subscription)
    try:
        node = Node(GROUP, GroupRecord("group", group, topic_filter, ours), name="group", now_ns=steady_ns())
        told = await _drive(node, groups, node.feed(operation, steady_ns()))
    finally:
        await groups.close()
        await streams.close()
    if isinstance(told, DeclarationRefused):
        raise differing(ours, told.properties)
    assert isinstance(told, outcome)
    return told


async def _drive(node: Node[GroupRecord], groups: GroupStore, effects: list[Effect]) -> Event:
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
