"""Several leader hosts as processes, and groups that are declared (page, scenarios 2 and 19)."""

from __future__ import annotations

import pytest
from stage import CALM, ONE, SUBSCRIPTION, THREE, TWO, Stage, topics
from stored_group import declare_group

from statemachines.testing.process_harness import free_port
from statemachines.trace.log import merge, read_logs


def lead(stage, count):
    """So many leader hosts, each of which knows the others."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(count)]
    for number, address in enumerate(addresses):
        peers = ",".join(other for other in addresses if other != address)
        stage.nodes.leader(f"leader-{number + 1}", "--peers", peers, listen=address)
    return addresses


def elected(stage):
    """The nodes of all leaders that took the claim, in order."""
    rows = merge(read_logs(stage.trace))
    return [row[1] for row in rows if row[2].endswith("/leader") and (row[6], row[7]) == ("candidate", "loading")]


@pytest.mark.long
def test_2_a_group_declared_with_start_0_gets_everything_stored(tmp_path):
    with Stage(tmp_path, **CALM) as stage:
        stage.publish(*topics(3), count=20)
        declare_group(stage.nodes.store, SUBSCRIPTION, config=tmp_path / "group.toml")
        stage.lead()
        stage.join(ONE, "--start", "now")
        stage.until_done()
        assert stage.wrong() == []
        assert stage.twice() == []


@pytest.mark.long
def test_19_three_hosts_the_leader_is_killed_and_there_is_one_election(tmp_path):
    """A claim lasts ten heartbeats here: a leader that is merely slow is not followed by another."""
    with Stage(tmp_path, claim_ttl_ms=5_000) as stage:
        addresses = lead(stage, 3)
        for turn, name in enumerate((ONE, TWO, THREE)):
            stage.join(name, leader=",".join(addresses[turn:] + addresses[:turn]))  # its own host first
        stage.until_serving(ONE, TWO, THREE, load=topics(6))
        first = elected(stage)
        assert len(first) == 1
        stage.kill(first[0])
        stage.until(lambda: len(elected(stage)) > 1, "another leader", load=topics(6))
        stage.until_serving(ONE, TWO, THREE, load=topics(6))
        stage.until_done()
        assert len(elected(stage)) == 2
        assert elected(stage)[1] != first[0]
        assert stage.wrong() == []
