"""A leading host that members do not reach, and the other host does (page, Reachability)."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from stage import ONE, THREE, TWO, Stage, topics

from statemachines.testing import fault_proxy
from statemachines.testing.process_harness import free_port

TIMES = {"ping_timeout_ms": 1_000, "validity_ms": 2_000, "claim_ttl_ms": 2_000, "revoke_timeout_ms": 5_000}
LOAD = topics(4)


@contextmanager
def two_hosts(stage):
    """Two leader hosts which see each other.  The first leads: a member that knows it alone has asked it.
    Others reach it by a proxy, which the caller lets go bad: (proxy, what is given to them as address of both)."""
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
    for name, listen, peer in (("leader-1", first, second), ("leader-2", second, first)):
        stage.nodes.leader(name, "--peers", peer, listen=listen)
    host, _, port = first.rpartition(":")
    with fault_proxy.in_thread((host, int(port))) as proxy:
        stage.join(THREE, leader=first)
        stage.until_serving(THREE, load=LOAD)
        yield proxy, "{}:{},{}".format(*proxy.address, second)


@pytest.mark.parametrize("way", ["refused", "up", "down", "both"])
def test_SS_275_half_of_the_members_do_not_reach_the_leader(tmp_path, way):
    """They reach the follower alone: it relays, and each stream is delivered."""
    with Stage(tmp_path, **TIMES) as stage, two_hosts(stage) as (proxy, hosts):
        stage.join(ONE, leader=hosts)
        stage.until_serving(ONE, THREE, load=LOAD)
        if way == "refused":
            proxy.target = ("127.0.0.1", free_port())
            proxy.cut()
        else:
            proxy.block(way)
        stage.blow("leader-1")
        stage.join(TWO, leader=hosts)
        stage.until_serving(ONE, TWO, THREE, load=LOAD)
        stage.until_done()
        assert stage.wrong() == []
