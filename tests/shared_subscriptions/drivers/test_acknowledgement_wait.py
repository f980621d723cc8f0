"""The acknowledgement wait on real nodes: a handler that hangs, and an idle member beside it."""

from __future__ import annotations

import logging
import math
import pickle

import pytest
from test_given_back import TEN, seen
from test_nodes import CALM, FAST, Place, read, run

from statemachines.drivers.shared_subscriptions.shared_session import DeliveryRevoked
from statemachines.kernel import ConfigurationError

WAIT_S = 0.5


@pytest.mark.parametrize("times", [CALM, FAST], ids=["calm", "fast"])
def test_SS_352_SS_354_an_idle_member_gets_what_a_handler_keeps_that_hangs(tmp_path, caplog, times):
    async def test():
        place = Place(tmp_path, times)
        await place.publish("orders", *TEN[:2])
        await place.publish("parcels", *TEN[:2])
        async with place.leading(), place.consumer("consumer-1", ack_wait=WAIT_S) as hangs:
            (late,) = await read(hangs, 1, ack=False)
            await hangs.subscribe("$shared/others/none/#")
            async with place.consumer("consumer-2") as idle:
                got = await read(idle, 4)
                assert sorted((one.topic, one.offset) for one in got) == [
                    (topic, offset) for topic in ("orders", "parcels") for offset in (0, 1)
                ]
                assert [one.delivery_count for one in got if one.topic == late.topic] == [2, 2]
                for ack in (late.ack, lambda: late.ack(durable=True)):
                    with pytest.raises(DeliveryRevoked, match=r"message 0 of 0\.0/\w+ was not acknowledged within"):
                        await ack()
            await place.publish("orders", b"more")
            assert [one.payload for one in await read(hangs, 1)] == [b"more"], "it takes part again"

    with caplog.at_level(logging.WARNING, "gapless"):
        run(test())
    said = [line for line in caplog.messages if line.startswith("consumer-1")]
    both = "$shared/g/# and 1 other subscriptions"
    assert any(f"was not acknowledged for 0.5 s: the streams of {both} are given back" in line for line in said)
    assert any(f"{both} takes part again (it kept a message of stream" in line for line in said)


async def test_SS_351_SS_353_an_application_that_waits_for_messages_takes_part_again_at_once(tmp_path):
    place = Place(tmp_path)
    await place.publish("orders", *TEN[:2])
    async with place.leading(), place.consumer("consumer-1", ack_wait=WAIT_S) as messages:
        assert seen(await read(messages, 2, ack=False)) == [(0, 1, False), (1, 1, False)]
        assert seen(await read(messages, 2)) == [(0, 2, True), (1, 2, True)]


def test_SS_354_a_revoked_delivery_is_known_in_another_process():
    error = DeliveryRevoked("0.0/orders", 3)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("wait", [0, -1.0, math.nan, math.inf, 86_401])
def test_SS_355_a_wait_that_is_none_is_refused(tmp_path, wait):
    with pytest.raises(ConfigurationError, match=r"ack_wait = .*a day"):
        Place(tmp_path).consumer("consumer-1", ack_wait=wait)
