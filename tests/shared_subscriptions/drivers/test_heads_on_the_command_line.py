"""Headers and keys on the command line: what a publisher is told to give, a consumer prints."""

import json

import pytest
from test_sessions import NodesPlace
from waiting import run_async

from statemachines import cli
from statemachines.drivers.shared_subscriptions.node_commands import deal_with


def test_SS_380_a_publisher_gives_a_head_and_a_consumer_prints_it(tmp_path, capsys):
    place, lines = NodesPlace(tmp_path), tmp_path / "orders"
    lines.write_text("one\n")
    publish = ("node", "publisher", "--store", str(place.store), "--input", str(lines))
    assert cli.run((*publish, "--header", "trace=4f\t0c", "--header", "a=b=c", "--key", "ada")) == 0

    async def test():
        async with place.leading(), place.consumer("consumer-1") as messages:
            await deal_with(await anext(messages.batches(1)), None, 0.0, heads=True)

    capsys.readouterr()
    run_async(test())
    topic, offset, payload, head = capsys.readouterr().out.rstrip("\n").split("\t")
    assert (topic, offset, payload) == ("orders", "0", "one")
    assert json.loads(head.replace("\\\\", "\\")) == {
        "key": "ada",
        "headers": [["trace", "4f\t0c"], ["a", "b=c"]],
        "timestamp": None,
    }


@pytest.mark.parametrize(("wrong", "what"), [("x", "must be NAME=VALUE"), ("=x", "header")])
def test_SS_382_a_header_that_is_none_is_refused_by_name(tmp_path, capsys, wrong, what):
    lines = tmp_path / "orders"
    lines.write_text("one\n")
    publish = ("node", "publisher", "--store", str(tmp_path / "m.db"), "--input", str(lines))
    assert cli.run((*publish, "--header", wrong)) != 0
    assert what in capsys.readouterr().err
