"""Rows about MQTT traffic: what a broker stores, how soon a message comes, and how it reaches a thousand subscribers.

Each turn starts a broker process of its own.  All brokers have the same client, `MqttSocket`, with 20 messages
in flight.  Ours flushes a message before PUBACK (`power`), or not at all before a checkpoint (`process`).
"""

from __future__ import annotations

import select
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Final

from statemachines.testing.mqtt_connections.mqtt_broker import KINDS, MqttBroker
from statemachines.testing.mqtt_connections.mqtt_socket import PATIENCE_S, MqttSocket, make_publish, publish_all
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.shared_runs import SharedRuns

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


@contextmanager
def run_broker(kind: str) -> Iterator[MqttBroker]:
    """It runs until this is left, and its files are gone then."""
    with (
        tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder,
        MqttBroker(kind, Path(folder) / "broker") as broker,
    ):
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


def prepare_publish(ours: str, baseline: str, publishers: int, size: Size) -> TurnPair:
    """Both in as many rounds."""
    full = ROUNDS if publishers > 1 else ROUNDS_ALONE
    rounds, messages = size.pick((full, WAITING_MAX), (1, 2 * publishers))
    runs = (partial(rate_publishes, kind, publishers, rounds, messages) for kind in (ours, baseline))
    return TurnPair(*runs)


def build_publish_row(name: str, ours: str, baseline: str, publishers: int, at_least: float | None = None) -> BenchRow:
    """A row that says what both flush when."""
    count = "1 publisher" if publishers == 1 else f"{publishers} publishers"
    return BenchRow(
        name=name,
        about=f"messages of QoS 1 with 100 bytes for one absent session, {count}, at most {WAITING_MAX} waiting; "
        f"{KINDS[ours].title} (fsync {KINDS[ours].fsync})",
        unit="messages / s",
        baseline_name=f"{KINDS[baseline].title} (fsync {KINDS[baseline].fsync})",
        prepare=partial(prepare_publish, ours, baseline, publishers),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=at_least,
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


def pick_share(values: list[float], share: float) -> float:
    """So many of all values, which are sorted, are at most this."""
    return values[min(len(values) - 1, int(len(values) * share))]


LatencyRuns = SharedRuns[tuple[list[float], list[float]]]


@cache
def share_latencies(size: Size) -> LatencyRuns:
    """Ours and mosquitto with as many messages."""
    messages = size.pick(1_000, 3)
    return SharedRuns(
        lambda: (measure_latencies("ours-process", messages), measure_latencies("mosquitto-memory", messages))
    )


def read_shares(shared: LatencyRuns, share: float) -> TurnPair:
    """The same share of the messages at both brokers."""
    return TurnPair(
        shared.read(lambda values: pick_share(values[0], share)),
        shared.read(lambda values: pick_share(values[1], share)),
    )


def prepare_latency(share: float, size: Size) -> TurnPair:
    """Rows of several shares read the same runs."""
    return read_shares(share_latencies(size), share)


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


def prepare_fan_out(size: Size) -> TurnPair:
    """Ours and mosquitto with as many subscribers."""
    subscribers, messages = size.pick((SUBSCRIBERS, 20), (5, 2))
    runs = (partial(rate_fan_out, kind, subscribers, messages) for kind in ("ours-process", "mosquitto-memory"))
    return TurnPair(*runs)


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


def prepare_fan_out_absent(size: Size) -> TurnPair:
    """Ours and mosquitto with as many sessions."""
    sessions, messages = size.pick((SUBSCRIBERS, 320), (5, PUBLISHERS))
    kinds = ("ours-process", "mosquitto-memory")
    return TurnPair(*(partial(rate_fan_out_absent, kind, sessions, messages) for kind in kinds))


def read_memory(pid: int) -> int:
    """Bytes of resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith("VmRSS:"))
    return int(found.split()[1]) * 1_024


MEMORY: Final = KINDS["mosquitto-memory"].title
PREPARE_LATENCY: Final[tuple[tuple[str, str, Callable[[Size], TurnPair]], ...]] = tuple(
    (f"mqtt-live-1-{name}", name, partial(prepare_latency, share)) for name, share in (("p50", 0.5), ("p99", 0.99))
)

ROWS: Final = (
    build_publish_row("mqtt-publish", "ours-power", "mosquitto-autosave", PUBLISHERS, 2),
    build_publish_row("mqtt-publish-one", "ours-power", "mosquitto-autosave", 1, 2),
    *(
        BenchRow(
            name=name,
            about=f"publish to delivery, QoS 1 with 100 bytes, 1 connected clients with a topic each: {what}",
            unit="ms",
            baseline_name=MEMORY,
            prepare=prepare,
            ratio=RatioKind.OURS_OVER_BASELINE,
        )
        for name, what, prepare in PREPARE_LATENCY
    ),
    BenchRow(
        name="mqtt-fan-out",
        about=f"one publisher of QoS 1, {SUBSCRIBERS} connected subscribers, the next message when all have this one",
        unit="deliveries / s",
        baseline_name=MEMORY,
        prepare=prepare_fan_out,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    BenchRow(
        name="mqtt-fan-out-absent",
        about=f"messages of {PUBLISHERS} publishers of QoS 1 that are stored for {SUBSCRIBERS} absent sessions each",
        unit="messages / s",
        baseline_name=MEMORY,
        prepare=prepare_fan_out_absent,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
)
