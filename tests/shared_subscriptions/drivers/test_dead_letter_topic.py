"""Dead letters on real stores and nodes: one batch with the progress, once, and read by another group."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace
from test_given_back import TEN
from test_nodes import CALM, Place, read, run

from statemachines.drivers.message_head import decode_head
from statemachines.drivers.shared_subscriptions.groups import declare
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions import dead_letter
from statemachines.shared_subscriptions.group_store import Commit, FailingMessage, Read, ReadDone
from statemachines.shared_subscriptions.stream_store import Fetch, Slice

PROGRESS, FAILING = "/1.8/g/orders/#:progress:0.0/orders/a", "/1.8/g/orders/#:progress-failing:0.0/orders/a"
LETTER = dead_letter.DeadLetter("g", "orders/#", "0.0/orders/a", 1, 3, dead_letter.REASONS[True])


async def read_values(groups):
    (answer,) = await groups.ask(Read(1, (PROGRESS, FAILING)))
    assert isinstance(answer, ReadDone)
    return [None if one is None else one.value for one in answer.records]


async def test_SS_347_a_letter_and_the_progress_are_one_batch_on_every_database(new_database):
    groups, streams = new_database.groups(), new_database.streams(shards=1)
    failing = FailingMessage(1, 3, parked=True)
    await streams.append("orders/a", [b"zero", b"one", b"two"])
    await groups.ask(Commit(1, (), ((PROGRESS, 1), (FAILING, failing))))

    missing = replace(LETTER, offset=7)
    (refused,) = await streams.ask(dead_letter.StoreLetter(2, "dead", missing))
    assert isinstance(refused, dead_letter.LetterRefused)
    assert "is of no message in the store" in refused.why
    assert await read_values(groups) == [1, failing]

    for new in (True, False):
        assert await streams.ask(dead_letter.StoreLetter(3, "dead", LETTER)) == (dead_letter.LetterStored(3, new),)
        assert await read_values(groups) == [2, None]
    assert await streams.ask(dead_letter.StoreLetter(4, "dead", replace(LETTER, offset=0))) == (
        dead_letter.LetterStored(4, False),
    )
    _, ((payload,),) = await streams.fetch(Fetch(5, (Slice("0.0/dead", 1, 0, 9),)))
    (stored, head) = payload
    assert (stored, dead_letter.read_dead_letter(decode_head(head).headers)) == (b"one", LETTER)

    await streams.end("0.0/dead")
    (refused,) = await streams.ask(dead_letter.StoreLetter(6, "dead", replace(LETTER, offset=2)))
    assert isinstance(refused, dead_letter.LetterRefused)
    assert "has ended" in refused.why
    assert await read_values(groups) == [2, None], "nothing of the batch was written"
    await groups.close()
    await streams.close()


def test_SS_349_a_group_that_would_get_its_own_letters_is_named_in_the_log(tmp_path, caplog):
    async def test():
        place = Place(tmp_path, replace(CALM, max_deliver=1, dead_letter_topic="dead/g"))
        await place.publish("orders", *TEN[:1])
        async with place.leading(), place.consumer("consumer-1") as messages:
            await read(messages, 1)
        with pytest.raises(
            ConfigurationError, match="dead_letter_topic = 'dead/g': is matched by the group's own filter"
        ):
            await declare("$shared/g/dead/+", store=place.store, configuration=place.times)

    with caplog.at_level(logging.ERROR, "gapless"):
        run(test())
    assert any("the group g is to read #, which matches its dead-letter topic dead/g" in one for one in caplog.messages)
