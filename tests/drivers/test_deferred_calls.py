"""DeferredCalls: what runs now is over before they are made."""

import asyncio

import pytest
from waiting import turns

from statemachines.drivers.deferred_calls import DeferredCalls


def play(body):
    async def main():
        calls, said = DeferredCalls(), []
        await body(calls, said)
        return said

    return asyncio.run(main())


def test_one_that_fails_is_logged_and_keeps_back_none(caplog):
    async def body(calls, said):
        with calls.batch():
            calls.defer(lambda: 1 // 0)
            calls.defer(lambda: said.append("second"))

    assert play(body) == ["second"]
    assert "ZeroDivisionError" in caplog.text


def test_where_the_batch_fails_the_loop_makes_them():
    async def body(calls, said):
        def fail():
            with calls.batch():
                calls.defer(lambda: said.append("called"))
                said.append(1 // 0)

        with pytest.raises(ZeroDivisionError):
            fail()
        assert said == []
        await turns()

    assert play(body) == ["called"]
