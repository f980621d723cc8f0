"""A leader host that is stopped beyond the end of its claim (SIGSTOP): what it does first when it goes on."""

from __future__ import annotations

import time

from stage import LEADER, ONE, TENTH, Stage, topics

from statemachines.trace.log import read_logs

ASLEEP_S = 2.5 * TENTH["claim_ttl_ms"] / 1000
"""Beyond the end of its claim, of every heartbeat, and of every lease."""


def rows_of_leader(stage):
    """What the log of the leader host says of its first leader: (time, row), in order."""
    (log,) = (log for log in read_logs(stage.trace) if log.head.node == LEADER)
    leaders = [row for row in log.rows if row[2].endswith("/leader")]
    first = leaders[0][3]
    return [row for row in leaders if row[3] == first]


def test_SS_132_a_leader_that_wakes_after_the_end_of_its_claim_resigns_before_it_does_anything(tmp_path):
    with Stage(tmp_path) as stage:
        stage.lead()
        stage.join(ONE)
        stage.until_serving(ONE, load=topics(2))
        host = stage.nodes.nodes[LEADER]
        stage.note("pause", LEADER)
        host.stop()
        stopped_ns, end = time.time_ns(), time.monotonic() + ASLEEP_S
        stage.until(lambda: time.monotonic() > end, "its claim to end")
        host.resume()
        stage.until(lambda: rows_of_leader(stage)[-1][7] == "resigned", "it to resign")
        woken = [row for row in rows_of_leader(stage) if row[0] > stopped_ns]
        assert (woken[0][4], woken[0][5]) == ("timer", "claim_end"), woken[:4]
        stage.until_serving(ONE, load=topics(2))
        stage.until_done()
        assert stage.wrong() == []
