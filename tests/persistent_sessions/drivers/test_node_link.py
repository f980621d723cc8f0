"""Messages between a client and a node of the same process."""

from __future__ import annotations

import asyncio

from statemachines.drivers.persistent_sessions.node_link import Lane


async def test_what_is_said_is_heard_later_in_order_and_together():
    heard, turns = [], []
    lane = Lane(heard.append)
    for number in range(3):
        assert lane.say(number)
    assert heard == []
    asyncio.get_running_loop().call_soon(lambda: turns.append(list(heard)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (heard, turns) == ([0, 1, 2], [[0, 1, 2]])
    lane.say(3)
    await asyncio.sleep(0)
    assert heard == [0, 1, 2, 3]


async def test_what_is_said_by_who_hears_comes_in_the_next_turn():
    heard = []

    def hear(number):
        heard.append(number)
        if number < 5:
            lane.say(number + 1)

    lane = Lane(hear)
    lane.say(1)
    await asyncio.sleep(0)
    assert heard == [1]
    for _ in range(9):
        await asyncio.sleep(0)
    assert heard == [1, 2, 3, 4, 5]


async def test_one_that_fails_keeps_back_none():
    errors, heard = [], []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
    lane = Lane(lambda number: heard.append(6 // number))
    for number in (1, 0, 2, 0, 3):
        lane.say(number)
    for _ in range(9):
        await asyncio.sleep(0)
    assert heard == [6, 3, 2]
    assert [type(one) for one in errors] == [ZeroDivisionError] * 2
