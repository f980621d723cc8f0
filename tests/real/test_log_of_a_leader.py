"""What the log of a real leader host tells of its groups: a line with the time and the node for each thing that an
operator asks about."""

from __future__ import annotations

import re
import signal
import time

import pytest
from stage import TENTH

from tests.real.outside import LeaderHost, Stranger, read_all
from tests.real.stored_group import declare_group, publish_lines

LINES = [f"line {number}" for number in range(20)]
TIMES = {**TENTH, "claim_ttl_ms": 3_000}
LATE_S, LOST_S = 1.7, 3.3
"""More than half of a claim, and more than a claim lasts."""

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO leader-9: group g, #: (.*)")


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "group.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in TIMES.items()))
    return path


@pytest.fixture
def store(tmp_path, config):
    """Messages in one stream, and a group that begins before them."""
    store = tmp_path / "messages.db"
    declare_group(store, config=config)
    publish_lines(store, LINES)
    return store


def stand_still(host, seconds):
    """A process that gets no time."""
    host.child.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    host.child.send_signal(signal.SIGCONT)


def until_late(host):
    """Stopped for half a claim; on a machine that keeps it from running for longer it may lose the claim instead."""
    end = time.monotonic() + 60
    while "renewed its claim late" not in host.said:
        assert time.monotonic() < end, host.said
        stand_still(host, LATE_S)
        time.sleep(TIMES["claim_heartbeat_ms"] / 1_000)


def test_SS_257_an_operator_reads_who_leads_who_is_a_member_and_what_moved(tmp_path, store, config):
    with LeaderHost(tmp_path, store, "--config", config, "--name", "leader-9") as host:
        with Stranger(host.port, "mute~1", store=store) as mute:
            _, _, leader, *pair = mute.register("mute~1/1", "g", "#")
            mute.say("mute~1/1", leader, "ping", "mute~1/1", *pair, 1, [])
            assert mute.hear("ping_response") is not None
            host.until_said("mute~1/1 is no member any more")
        with Stranger(host.port, "early~1", store=store) as early:
            _, _, leader, *pair = early.register("early~1/1", "g", "#")
            early.say("early~1/1", leader, "disconnect", "early~1/1", *pair, [])
            host.until_said("early~1/1 is no member any more")
        assert read_all(tmp_path, store, host.port, len(LINES), "--config", config) == set(range(len(LINES)))
        until_late(host)
        stand_still(host, LOST_S)
        host.until_said("does not lead it any more: the claim is lost")
        with Stranger(host.port, "late~1", store=store) as late:
            late.register("late~1/1", "g", "#")
        host.until_said("under epoch 2")
        assert host.stop() == 0, host.said
    told = [found[1] for line in host.said.splitlines() if (found := LINE.fullmatch(line))]
    assert told[:2] == ["leads it, under epoch 1", "mute~1/1 is a member"]
    assert told.index("streams moved: 1 granted; it has 1 members") > 0
    left = next(line for line in told if line.startswith("mute~1/1 is no member any more: it "))
    assert left.partition(": it ")[2] in (
        "expired, since nothing was heard of it; its streams wait for the end of its lease",
        "was kicked, since it did not answer a grant; its streams wait for the end of its lease",
    )
    free = told.index("the lease of mute~1/1 has ended; its streams are free")
    assert free > told.index(left)
    assert "early~1/1 is no member any more: it left" in told
    assert told[-1] == "does not lead it any more: released"
