"""A publisher of QoS 2 whose node is killed or stands still between packets of the handshake: each message once."""

from __future__ import annotations

from mqtt_judge import count_moved, judge_once
from run import run_seed


def test_MQ_120_each_message_comes_once_whenever_the_publishers_node_is_killed(tmp_path):
    met, said, wrong = run_seed("once", tmp_path, str(tmp_path / "s.db"), 5, 4)
    assert wrong == []
    assert met.total() == said["met"] == 4
    assert said["messages"] > 20
    assert all("Traceback" not in one.read_text() for one in tmp_path.glob("*.log"))


def test_the_judge_sees_what_is_missing_doubled_and_moved():
    assert judge_once(6, [1, 2, 3, 5, 4, 6]) == []
    assert "missing" in judge_once(3, [1, 3])[0]
    assert "twice" in judge_once(3, [1, 2, 3, 2])[0]
    assert [count_moved([1, 2, 3, 5, 4]), count_moved([4, 1, 2, 3])] == [0, 1]
