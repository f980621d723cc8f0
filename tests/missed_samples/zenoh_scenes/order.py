"""What comes by itself, and in which order."""

from __future__ import annotations

from waiting import until_async

from statemachines.drivers.missed_samples import (
    declare_reliable_publisher,
    declare_reliable_subscriber,
)
from zenoh_scenes.scene import SURE, can_ask, numbers, say, scene, take, two_sessions


async def in_order(layout: str) -> None:
    async with two_sessions() as (near, far, link):
        options = {"layout": layout}
        async with (
            declare_reliable_subscriber(far, "k/*", **options) as subscriber,
            declare_reliable_publisher(near, "k/a", history=10, **options, **SURE) as publisher,
        ):
            await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            for number in range(200):
                assert publisher.put(say(number)) == number
            got = await take(subscriber, 200)
            assert [one.payload.to_string() for one in got] == [say(n) for n in range(200)]
            assert numbers(got) == list(range(200))
            assert {one.source for one in got} == {publisher.source}
            assert subscriber.statistics.queries == 1  # QUIET: for its token alone
            assert link.lost == 0
            assert publisher.cache_statistics.samples == 10


@scene
async def who_is_heard_is_known() -> None:
    """zenoh's own word for it is an object that is always true."""
    async with two_sessions() as (near, far, _), declare_reliable_publisher(near, "k/a", **SURE) as publisher:
        is_asked = can_ask(near, "z/a")
        assert (publisher.is_heard, is_asked()) == (False, False)
        async with declare_reliable_subscriber(far, "k/*"):
            await until_async(lambda: publisher.is_heard)
        await until_async(lambda: not publisher.is_heard)
        queryable = far.declare_queryable("z/*")
        await until_async(is_asked)
        queryable.undeclare()
        await until_async(lambda: not is_asked())


@scene
async def everything_in_order() -> None:
    await in_order("advanced")
    await in_order("plain")
