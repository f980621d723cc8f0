"""Row about groups inside MQTT sessions: what a node spends on a message for a member of a `$share` group.

Node and clients are the same with a plain subscription, which is the baseline.  All messages are published before the
subscriber reads the first: so the member fills its session, and goes on as the client acknowledges.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from statemachines.kernel import GaplessError
from statemachines.testing.mqtt_connections.mqtt_broker import MqttBroker
from statemachines.testing.mqtt_connections.mqtt_socket import MqttSocket, publish_all
from statemachines.testing.process_harness import free_port
from statemachines_bench.mqtt_traffic import PAYLOAD, PUBLISHERS, TOPIC
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.session_idle import read_cpu_s

MESSAGES: Final = 4_000


def spend_on_message(topic_filter: str, messages: int) -> float:
    """Microseconds of the node's processor time a message, from the first publish to the last acknowledgement."""
    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder, ExitStack() as stack:
        groups = ("--group-listen", f"127.0.0.1:{free_port()}")
        broker = stack.enter_context(MqttBroker("ours-process", Path(folder) / "broker", groups))
        reader = stack.enter_context(MqttSocket(broker.port, "reader", clean=False))
        reader.subscribe(topic_filter)
        clients = [stack.enter_context(MqttSocket(broker.port, f"p{one}")) for one in range(PUBLISHERS)]
        before = read_cpu_s(broker.pid)
        publish_all(clients, TOPIC, [PAYLOAD + str(number).encode() for number in range(messages)])
        came: set[bytes] = set()
        while len(came) < messages:
            found = reader.read_messages()
            came.update(one.payload for one in found)
            reader.acknowledge(found)
        spent = read_cpu_s(broker.pid) - before
    if not spent:
        raise GaplessError("the node has spent nothing")
    return spent / messages * 1e6


def prepare(size: Size) -> TurnPair:
    """The same topic, in a group and alone."""
    messages = size.pick(MESSAGES, 300)
    return TurnPair(
        partial(spend_on_message, f"$share/g/{TOPIC}", messages), partial(spend_on_message, TOPIC, messages)
    )


ROWS: Final = (
    BenchRow(
        name="mqtt-share",
        about=f"processor time of a node a message of a $share group with one member: {PUBLISHERS} publishers, "
        f"{MESSAGES:,} messages of QoS 1, which are all there before the member's client reads",
        unit="us / message",
        baseline_name="the same with a plain subscription",
        prepare=prepare,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=3.0,
    ),
)
