"""Members that do not reach the leader host, which another host does: what they get meanwhile.

The first of two leader hosts leads.  One member knows it alone; two reach it by a proxy that goes bad, and reach the
other host.  The hosts see each other.
"""

from __future__ import annotations

from stage import ONE, THREE, TWO, Stage, topics

from statemachines.testing import fault_proxy
from statemachines.testing.process_harness import free_port

TIMES = {"ping_timeout_ms": 1_000, "validity_ms": 2_000, "claim_ttl_ms": 2_000, "revoke_timeout_ms": 5_000}
LOAD = topics(4)
WAYS = ("refused", "up", "down", "both")
CASES = tuple((way, stays) for way in WAYS for stays in (True, False))
"""How the proxy goes bad; and whether the member stays that reaches the leader."""


def run_case(folder, way, stays, rounds=1):
    """Every member that is there gets messages again, so many times; how many messages came through, and what is
    wrong with them."""
    with Stage(folder, **TIMES) as stage:
        first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
        stage.nodes.leader("leader-1", "--peers", second, listen=first)
        stage.nodes.leader("leader-2", "--peers", first, listen=second)
        stage.join(THREE, leader=first)
        stage.until_serving(THREE, load=LOAD)
        host, _, port = first.rpartition(":")
        with fault_proxy.run_in_thread((host, int(port))) as proxy:
            hosts = "{}:{},{}".format(*proxy.address, second)
            stage.join(ONE, leader=hosts)
            stage.until_serving(ONE, THREE, load=LOAD)
            spoil(proxy, way)
            stage.blow("leader-1")
            stage.join(TWO, leader=hosts)
            if not stays:
                stage.leave(THREE)
            there = (ONE, TWO, THREE) if stays else (ONE, TWO)
            for _ in range(rounds):
                stage.until_serving(*there, load=LOAD)
            stage.until_done()
            return stage.acked(), stage.wrong()


def spoil(proxy, way):
    """Nobody is there any more; or what is said one way, or both, does not arrive."""
    if way == "refused":
        proxy.target = ("127.0.0.1", free_port())
        proxy.cut()
    else:
        proxy.block(way)
