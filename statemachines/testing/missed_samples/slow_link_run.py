"""slow_link_run: a link is cut while samples are put into a cache, and comes back slow.

It says what our subscriber gives up, and zenoh's own beside it; and what late joiners get of the history.

python -m statemachines.testing.missed_samples.slow_link_run --samples 3000 --rate 200000

It prints a line of JSON for each of the two, and exits with 1 if ours gives anything up.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any, Final

import zenoh
import zenoh.ext

from gapless.zenoh import HistoryConfig, declare_subscriber
from statemachines.drivers.missed_samples import session_config
from statemachines.testing.fault_proxy import BOTH, DOWN, FaultProxy, run_in_thread
from statemachines.testing.missed_samples.linked_sessions import await_that, put_until_heard
from statemachines.testing.process_harness import free_port

KEY: Final = "slow/link"
PAYLOAD: Final = b"x" * 1_000
STILL_S: Final = 45.0
"""When nothing has come for so long, nothing more is waited for."""


def subscribe(stack: ExitStack, session: zenoh.Session, newest: int = 0) -> Counter[str]:
    """Our subscriber and zenoh's own, on one session, with so much history; what they tell of is counted."""
    told: Counter[str] = Counter()

    def count(what: str, size: Any = lambda given: 1) -> Any:
        return lambda given: told.update({what: size(given)})

    history = HistoryConfig(max_samples=newest) if newest else None
    ours = stack.enter_context(declare_subscriber(session, KEY, count("delivered"), history=history))
    ours.sample_miss_listener(count("missed", lambda miss: miss.nb))
    theirs = zenoh.ext.declare_advanced_subscriber(
        session, KEY, count("their_delivered"),
        history=zenoh.ext.HistoryConfig(max_samples=newest) if newest else None,
        recovery=zenoh.ext.RecoveryConfig(heartbeat=True, periodic_queries=None),
    )  # fmt: skip
    stack.enter_context(theirs)
    stack.callback(theirs.sample_miss_listener(count("their_missed", lambda miss: miss.nb)).undeclare)
    return told


def await_all(what: str, told: Counter[str], samples: int) -> bool:
    """Wait until both have told of so many samples, or nothing comes any more; print it.  Whether ours has all."""
    began = moved = time.monotonic()
    before = 0
    while told.total() < 2 * samples and time.monotonic() - moved < STILL_S:
        if told.total() != before:
            before, moved = told.total(), time.monotonic()
        time.sleep(0.05)
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"what": what, "samples": samples, **told, "seconds": seconds}), flush=True)
    return told["delivered"] >= samples


def configure_zenoh(**given: Any) -> zenoh.Config:
    """With timestamps, as zenoh's own caches want them."""
    config = session_config(**given)
    config.insert_json5("timestamping/enabled", "true")
    return config


def play(stack: ExitStack, proxy: FaultProxy, port: int, samples: int, rate: int) -> bool:
    """Cut, fill, come back at `rate` bytes a second; then somebody joins late.  Whether ours gives nothing up."""
    near = stack.enter_context(zenoh.open(configure_zenoh(listen=[f"tcp/127.0.0.1:{port}"])))
    far = stack.enter_context(zenoh.open(configure_zenoh(connect=["tcp/{}:{}".format(*proxy.address)])))
    publisher = stack.enter_context(zenoh.ext.declare_advanced_publisher(
        near, KEY, cache=zenoh.ext.CacheConfig(samples + 100), publisher_detection=True,
        sample_miss_detection=zenoh.ext.MissDetectionConfig(heartbeat=0.5, sporadic_heartbeat=None),
        congestion_control=zenoh.CongestionControl.BLOCK,
    ))  # fmt: skip
    told = subscribe(stack, far)
    put_until_heard(
        lambda number: publisher.put(PAYLOAD), lambda number: min(told["delivered"], told["their_delivered"]) > 1
    )  # fmt: skip
    told.clear()
    proxy.block(BOTH)
    proxy.cut()
    await_that(lambda: not near.info.transports(), "the end of the link")
    for _ in range(samples):
        publisher.put(PAYLOAD)
    proxy.throttle(DOWN, rate)
    proxy.unblock(BOTH)
    whole = await_all("a link that was cut", told, samples)
    newest = samples * 2 // 5
    return await_all("a late joiner", subscribe(stack, far, newest), newest) and whole


def main() -> int:
    """Play it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=3_000)
    parser.add_argument("--rate", type=int, default=200_000, help="bytes a second")
    options = parser.parse_args()
    port = free_port()
    with run_in_thread(("127.0.0.1", port)) as proxy, ExitStack() as stack:
        return not play(stack, proxy, port, options.samples, options.rate)


if __name__ == "__main__":
    os._exit(main())
