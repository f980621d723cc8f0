"""Rows about MQTT traffic: what a broker stores, how soon a message comes, and how it reaches a thousand subscribers.

Each turn starts a broker process of its own.  All brokers have the same client, `MqttSocket`, with 20 messages
in flight.  Ours flushes a message before PUBACK (`power`), or not at all before a checkpoint (`process`).

In `session-latency-*` publisher and subscriber are paho-mqtt, with a thread each, at both brokers.  The subscriber's
session is kept.  The next message is published when this one has come and is acknowledged.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from statemachines.testing.mqtt_connections.mqtt_broker import KINDS, MqttBroker
from statemachines.testing.mqtt_connections.mqtt_socket import PATIENCE_S, MqttSocket, make_publish, publish_all
from statemachines_bench.harness import SharedRuns, compare, open_folder
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

if TYPE_CHECKING:
    from paho.mqtt.client import Client

PAYLOAD: Final = b"x" * 100
TOPIC: Final = "bench/t"
WAITING_MAX: Final = 900
"""Messages that wait for the absent session at most; a round begins when it has taken them."""

ROUNDS: Final = 5
ROUNDS_ALONE: Final = 2
"""Of one publisher, which waits for many times as many flushes."""

PUBLISHERS: Final = 16
SUBSCRIBERS: Final = 1_000
READER: Final = "reader"
WARM: Final = 50
"""Messages of paho-mqtt before the first that counts."""

OURS: Final = "ours-process"
MEMORY: Final = "mosquitto-memory"
KEPT: Final = "mosquitto-persistence"


@contextmanager
def run_broker(kind: str) -> Iterator[MqttBroker]:
    """It runs until this is left, and its files are gone then."""
    with open_folder() as folder, MqttBroker(kind, folder / "broker") as broker:
        yield broker


# -- publishing to an absent session ----------------------------------------------------------------------------------


def rate_publishes(kind: str, publishers: int, rounds: int, messages: int) -> float:
    """Messages a second that are stored for one absent session, and acknowledged."""
    spent = 0.0
    with run_broker(kind) as broker, ExitStack() as stack:
        with MqttSocket(broker.port, READER, clean=False) as reader:
            reader.subscribe(TOPIC)
        clients = [stack.enter_context(MqttSocket(broker.port, f"p{one}")) for one in range(publishers)]
        for _ in range(rounds):
            began = perf_counter()
            publish_all(clients, TOPIC, [PAYLOAD] * messages)
            spent += perf_counter() - began
            drain(broker.port, messages)
    return rounds * messages / spent


def drain(port: int, messages: int) -> None:
    """The session takes everything that waits for it."""
    with MqttSocket(port, READER, clean=False) as reader:
        while messages > 0:
            found = reader.read_messages()
            reader.acknowledge(found)
            messages -= len(found)


def describe_kind(kind: str) -> str:
    """A broker, and what it flushes when."""
    return f"{KINDS[kind].title} (fsync {KINDS[kind].fsync})"


def build_publish_row(name: str, publishers: int, rounds: int) -> BenchRow:
    """A row of so many publishers, whose messages ours and mosquitto keep."""
    count = "1 publisher" if publishers == 1 else f"{publishers} publishers"
    return BenchRow(
        name=name,
        about=f"messages of QoS 1 with 100 bytes for one absent session, {count}, at most {WAITING_MAX} waiting; "
        f"{describe_kind('ours-power')}",
        unit="messages / s",
        baseline_name=describe_kind("mosquitto-autosave"),
        prepare=compare(
            partial(rate_publishes, "ours-power", publishers),
            partial(rate_publishes, "mosquitto-autosave", publishers),
            (rounds, WAITING_MAX),
            (1, 2 * publishers),
        ),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=2,
    )


# -- live clients -----------------------------------------------------------------------------------------------------


def measure_latencies(kind: str, messages: int) -> list[float]:
    """Milliseconds from each publish to its delivery, sorted."""
    took = []
    with run_broker(kind) as broker, ExitStack() as stack:
        publisher = stack.enter_context(MqttSocket(broker.port, "publisher"))
        subscriber = stack.enter_context(MqttSocket(broker.port, "s0"))
        subscriber.subscribe("bench/0")
        for _ in range(messages):
            began = perf_counter()
            publisher.publish(*make_publish("bench/0", PAYLOAD))
            found = subscriber.read_messages()
            took.append(perf_counter() - began)
            subscriber.acknowledge(found)
            publisher.read_frames()
    return [1e3 * one for one in sorted(took)]


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


def measure_paho(kind: str, messages: int) -> list[float]:
    """The same between clients of paho-mqtt."""
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


def pick_share(values: list[float], share: float) -> float:
    """So many of all values, which are sorted, are at most this."""
    return values[min(len(values) - 1, int(len(values) * share))]


MeasureLatencies = Callable[[str, int], list[float]]


@cache
def share_latencies(measure: MeasureLatencies, baseline: str, messages: int) -> SharedRuns[tuple[list[float], ...]]:
    """Ours and mosquitto with as many messages: rows of several shares read the same runs."""
    return SharedRuns(lambda: (measure(OURS, messages), measure(baseline, messages)))


def prepare_latency(measure: MeasureLatencies, baseline: str, messages: int, share: float, size: Size) -> TurnPair:
    """The same share of the messages at both brokers."""
    shared = share_latencies(measure, baseline, size.pick(messages, 3))
    return TurnPair(
        shared.read(lambda values: pick_share(values[0], share)),
        shared.read(lambda values: pick_share(values[1], share)),
    )


# -- fan-out ----------------------------------------------------------------------------------------------------------


def rate_fan_out(kind: str, subscribers: int, messages: int) -> float:
    """Deliveries a second of one publisher, whose next message goes out when all subscribers have this one."""
    with run_broker(kind) as broker, ExitStack() as stack:
        publisher = stack.enter_context(MqttSocket(broker.port, "publisher"))
        clients = [stack.enter_context(MqttSocket(broker.port, f"s{one}")) for one in range(subscribers)]
        poll, by_number = select.poll(), {one.socket.fileno(): one for one in clients}
        for number, one in by_number.items():
            one.subscribe(TOPIC)
            poll.register(number, select.POLLIN)
        packet, place = make_publish(TOPIC, PAYLOAD)
        began = perf_counter()
        for _ in range(messages):
            publisher.publish(packet, place)
            left = subscribers
            while left:
                ready = poll.poll(PATIENCE_S * 1_000)
                assert ready, f"{left} deliveries are missing"
                for number, _ in ready:
                    found = by_number[number].read_messages()
                    by_number[number].acknowledge(found)
                    left -= len(found)
            publisher.read_frames()
        return subscribers * messages / (perf_counter() - began)


def rate_fan_out_absent(kind: str, sessions: int, messages: int) -> float:
    """Messages a second that are stored for so many absent sessions each, and acknowledged, of several publishers."""
    with run_broker(kind) as broker, ExitStack() as stack:
        for one in range(sessions):
            with MqttSocket(broker.port, f"s{one}", clean=False) as client:
                client.subscribe(TOPIC)
        clients = [stack.enter_context(MqttSocket(broker.port, f"p{one}")) for one in range(PUBLISHERS)]
        publish_all(clients, TOPIC, [PAYLOAD] * PUBLISHERS)  # each session has a writer from now on
        began = perf_counter()
        publish_all(clients, TOPIC, [PAYLOAD] * messages)
        return messages / (perf_counter() - began)


ROWS: Final = (
    build_publish_row("mqtt-publish", PUBLISHERS, ROUNDS),
    build_publish_row("mqtt-publish-one", 1, ROUNDS_ALONE),
    *(
        BenchRow(
            name=f"mqtt-live-1-p{percent}",
            about=f"publish to delivery, QoS 1 with 100 bytes, 1 connected clients with a topic each: p{percent}",
            unit="ms",
            baseline_name=KINDS[MEMORY].title,
            prepare=partial(prepare_latency, measure_latencies, MEMORY, 1_000, percent / 100),
            ratio=RatioKind.OURS_OVER_BASELINE,
        )
        for percent in (50, 99)
    ),
    BenchRow(
        name="mqtt-fan-out",
        about=f"one publisher of QoS 1, {SUBSCRIBERS} connected subscribers, the next message when all have this one",
        unit="deliveries / s",
        baseline_name=KINDS[MEMORY].title,
        prepare=compare(partial(rate_fan_out, OURS), partial(rate_fan_out, MEMORY), (SUBSCRIBERS, 20), (5, 2)),
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    BenchRow(
        name="mqtt-fan-out-absent",
        about=f"messages of {PUBLISHERS} publishers of QoS 1 that are stored for {SUBSCRIBERS} absent sessions each",
        unit="messages / s",
        baseline_name=KINDS[MEMORY].title,
        prepare=compare(
            partial(rate_fan_out_absent, OURS),
            partial(rate_fan_out_absent, MEMORY),
            (SUBSCRIBERS, 320),
            (5, PUBLISHERS),
        ),
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    *(
        BenchRow(
            name=f"session-latency-p{percent}",
            about="publish to delivery on a connected session that is kept, QoS 1 with 100 bytes, both clients "
            f"paho-mqtt: p{percent}; {describe_kind(OURS)}",
            unit="ms",
            baseline_name=describe_kind(KEPT),
            prepare=partial(prepare_latency, measure_paho, KEPT, 2_000, percent / 100),
            ratio=RatioKind.OURS_OVER_BASELINE,
            at_most=at_most,
        )
        for percent, at_most in ((50, 2.5), (99, 3.0))
    ),
)
