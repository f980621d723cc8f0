"""Messages between a client and a node of the same process."""

import asyncio

from waiting import turns

from statemachines.drivers.persistent_sessions.node_link import Lane


async def test_one_that_fails_keeps_back_none():
    errors, heard = [], []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
    lane = Lane(lambda number: heard.append(6 // number))
    for number in (1, 0, 2, 0, 3):
        lane.say(number)
    await turns(9)
    assert heard == [6, 3, 2]
    assert [type(one) for one in errors] == [ZeroDivisionError] * 2
