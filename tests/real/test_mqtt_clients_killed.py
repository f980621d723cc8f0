"""MQTT clients of others keep their process while their node is killed: every message, once and in order."""

from __future__ import annotations

import asyncio

import pytest
from mqtt_run import CLIENTS, MosquittoSubscriber, Receipt, judge, judge_trace, list_repeats, play


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_keeps_its_process_misses_nothing_when_its_node_is_killed(tmp_path, client):
    wrong, met, count, _ = asyncio.run(play(tmp_path, str(tmp_path / "s.db"), client, 5, 2))
    assert wrong == []
    assert met == 2
    assert count > 10
    assert judge_trace(tmp_path) == []
    assert all("Traceback" not in one.read_text() for one in tmp_path.glob("*.log"))


def test_the_judge_sees_what_is_missing_moved_doubled_and_a_session_that_is_gone():
    one, two, three = (Receipt(number, number, False) for number in (1, 2, 3))
    wanted = {1, 2, 3}
    assert judge(wanted, [one, two, three], [False, True], set()) == []
    assert judge(wanted, [one, two, Receipt(2, 2, True), three], [None, None], set()) == []
    assert judge(wanted, [one, two, two, three], [False], {2}) == []
    assert "missing" in judge(wanted, [one, three], [False], set())[0]
    assert "behind" in judge(wanted, [one, three, two], [False], set())[0]
    assert "twice" in judge(wanted, [one, two, two, three], [False], {1})[0]
    assert "session present" in judge(wanted, [one, two, three], [False, False], set())[0]
    assert list_repeats([one, one, Receipt(1, 1, True)]) == [1]
    assert MosquittoSubscriber(5, None).receipts == []
