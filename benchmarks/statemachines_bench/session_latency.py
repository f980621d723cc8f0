"""Rows about one message of a connected session: how soon it comes to an ordinary client.

Publisher and subscriber are paho-mqtt, with a thread each, at both brokers.  The subscriber's session is kept.  The
next message is published when this one has come and is acknowledged.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache, partial
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from statemachines.testing.mqtt_connections.mqtt_broker import KINDS
from statemachines_bench.mqtt_traffic import PAYLOAD, TOPIC, LatencyRuns, read_shares, run_broker
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.shared_runs import SharedRuns

if TYPE_CHECKING:
    from paho.mqtt.client import Client

PATIENCE_S: Final = 60.0
MESSAGES: Final = 2_000
WARM: Final = 50
"""Messages before the first that counts."""

OURS: Final = KINDS["ours-process"]
MOSQUITTO: Final = KINDS["mosquitto-persistence"]
SHARES: Final = (("p50", 0.5, 2.5), ("p99", 0.99, 3.0))
"""Name, share of the messages, and how many times as long ours may take."""


def connect(port: int, client_id: str, stack: ExitStack) -> Client:
    """A client of MQTT 3.1.1 whose session is kept, and whose thread runs."""
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    connected: SimpleQueue[object] = SimpleQueue()
    client = Client(CallbackAPIVersion.VERSION2, client_id, clean_session=False)
    client.on_connect = lambda *given: connected.put(given)
    client.connect("127.0.0.1", port)
    client.loop_start()
    stack.callback(client.loop_stop)
    stack.callback(client.disconnect)
    connected.get(timeout=PATIENCE_S)
    return client


def measure_latencies(kind: str, messages: int) -> list[float]:
    """Milliseconds from each publish to its delivery, sorted."""
    took = []
    came: SimpleQueue[float] = SimpleQueue()
    subscribed: SimpleQueue[object] = SimpleQueue()

    def note(*given: Any) -> None:
        came.put(perf_counter())

    with run_broker(kind) as broker, ExitStack() as stack:
        subscriber, publisher = (connect(broker.port, name, stack) for name in ("subscriber", "publisher"))
        subscriber.on_message = note
        subscriber.on_subscribe = lambda *given: subscribed.put(given)
        subscriber.subscribe(TOPIC, qos=1)
        subscribed.get(timeout=PATIENCE_S)
        for _ in range(WARM + messages):
            began = perf_counter()
            sent = publisher.publish(TOPIC, PAYLOAD, qos=1)
            took.append(came.get(timeout=PATIENCE_S) - began)
            sent.wait_for_publish(PATIENCE_S)
    return [1e3 * one for one in sorted(took[WARM:])]


@cache
def share_latencies(size: Size) -> LatencyRuns:
    """Ours and mosquitto with as many messages."""
    messages = size.pick(MESSAGES, 3)
    return SharedRuns(
        lambda: (measure_latencies("ours-process", messages), measure_latencies("mosquitto-persistence", messages))
    )


def prepare(share: float, size: Size) -> TurnPair:
    """Rows of several shares read the same runs."""
    return read_shares(share_latencies(size), share)


ROWS: Final = tuple(
    BenchRow(
        name=f"session-latency-{name}",
        about=f"publish to delivery on a connected session that is kept, QoS 1 with 100 bytes, both clients paho-mqtt: "
        f"{name}; {OURS.title} (fsync {OURS.fsync})",
        unit="ms",
        baseline_name=f"{MOSQUITTO.title} (fsync {MOSQUITTO.fsync})",
        prepare=partial(prepare, share),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=at_most,
    )
    for name, share, at_most in SHARES
)
