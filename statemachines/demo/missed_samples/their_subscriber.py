"""Their subscriber: zenoh's own AdvancedSubscriber as a process that prints what comes, as lines of JSON.

    python -m statemachines.demo.missed_samples.their_subscriber ENDPOINT KEY

It runs until it is killed: one that was declared keeps the interpreter from ending.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import msgspec
import zenoh
from zenoh import ext


def main(endpoint: str, key: str) -> None:
    """Print, until killed."""
    config = zenoh.Config()
    for name, value in (("mode", '"client"'), ("connect/endpoints", f'["{endpoint}"]'),
                        ("scouting/multicast/enabled", "false")):  # fmt: skip
        config.insert_json5(name, value)
    session = zenoh.open(config)
    recovery = ext.RecoveryConfig(periodic_queries=None, heartbeat=True)
    history = ext.HistoryConfig(detect_late_publishers=True)
    subscriber = ext.declare_advanced_subscriber(session, key, say_sample, recovery=recovery, history=history)
    listener = subscriber.sample_miss_listener(say_miss)
    say({"subscribed": key})
    while listener:  # it listens as long as somebody holds it
        time.sleep(60)


def say_sample(sample: zenoh.Sample) -> None:
    """It was delivered."""
    info = sample.source_info
    assert info is not None
    source = f"{info.source_id.zid}/{info.source_id.eid}"
    say({"from": source, "number": info.source_sn, "payload": sample.payload.to_bytes().decode(errors="replace")})


def say_miss(miss: Any) -> None:
    """So many were missed; of which numbers, it does not say."""
    say({"lost": miss.nb, "of": f"{miss.source.zid}/{miss.source.eid}"})


def say(line: dict[str, Any]) -> None:
    """A line of JSON, whole: zenoh calls back from several threads."""
    os.write(1, msgspec.json.encode(line) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
