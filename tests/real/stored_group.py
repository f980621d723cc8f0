"""A group and its messages, in the store before the processes of a test begin.

This process stores them: a command would take a quarter of a second to begin, and it is not what these tests are about.
"""

from __future__ import annotations

import asyncio

from statemachines.drivers.shared_subscriptions import Publisher
from statemachines.drivers.shared_subscriptions.groups import declare
from statemachines.drivers.shared_subscriptions.node_commands import read_configuration
from statemachines.shared_subscriptions.configuration import Configuration

TENTH = {
    field: getattr(Configuration(), field) // 10 for field in Configuration.__struct_fields__ if field.endswith("_ms")
}
"""Times of a group: a tenth of the defaults."""


def write_times(folder, times):
    """The file of them."""
    path = folder / "group.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in times.items()))
    return path


def declare_group(store, subscription="$shared/g/#", *, config=None, start="beginning", order=None):
    """Declare the group; `config`: the file of its times."""
    times = read_configuration(config)
    asyncio.run(declare(subscription, store=store, start=start, order=order, configuration=times))


def publish_lines(store, lines, topic="lines"):
    """Store the lines in one topic, in one transaction."""

    async def publish():
        async with Publisher(store) as publisher:
            await publisher.publish(topic, [line.encode() for line in lines])

    asyncio.run(publish())
