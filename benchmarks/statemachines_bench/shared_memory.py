"""The rows about the queue in shared memory: one producer, one consumer, and what it costs when one dies.

Both sides have a producer process of their own, made by a fork server, and are timed by the consumer from its first
message to its last, so that no start counts.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import quantiles
from typing import Any

import iceoryx2
import zmq

from statemachines.cursor_recovery.memory import WRITE_HEAD, CompareAndSwap
from statemachines.drivers.cursor_recovery import CircularQueue, Instruments
from statemachines.kernel import Request
from statemachines_bench.harness import compare
from statemachines_bench.row import BenchRow, RatioKind

BODY = b"x" * 64
Body = ctypes.c_uint8 * 64
BATCH = [bytes([number]) * 64 for number in range(64)]
"""A block of messages that differ: pickle writes what is the same only once."""
CONTEXT = get_context("forkserver")
POOL = {"read_cursors": 1, "write_cursors": 1}
"""What one producer and one consumer need."""


def make_queue(**shape: Any) -> CircularQueue[bytes]:
    """A queue of our own, which goes with the `with` block it is used in."""
    return CircularQueue.create(f"bench-{os.getpid()}-{time.monotonic_ns()}", **shape)


def messages_a_second(
    put: Callable[[], None],
    get: Callable[[], object],
    count: int,
    each: int,
    finish: Callable[[], object] = lambda: None,
) -> float:
    """`put` runs in another process and sends `count` times `each` messages, which `get` takes; then `finish` is
    called."""
    producer = CONTEXT.Process(target=put)
    producer.start()
    get()
    began = time.perf_counter()
    for _ in range(count - 1):
        get()
    spent = time.perf_counter() - began
    finish()
    producer.join()
    return (count - 1) * each / spent


def put_single(queue: Any, what: object, count: int) -> None:
    """A producer: one object a call."""
    for _ in range(count):
        queue.put(what)


def put_batches(queue: CircularQueue[bytes], count: int) -> None:
    """A producer of ours: a block of many a call."""
    for _ in range(count):
        queue.put_many(BATCH)


def ours_single(count: int) -> float:
    """Messages a second."""
    with make_queue(**POOL) as queue:
        return messages_a_second(partial(put_single, queue, BODY, count), queue.get, count, 1)


def ours_batch(count: int) -> float:
    """Messages a second."""
    with make_queue(**POOL) as queue:
        return messages_a_second(partial(put_batches, queue, count), queue.get_many, count, len(BATCH))


def theirs(what: object, each: int, count: int) -> float:
    """Messages a second through a `multiprocessing.Queue`."""
    queue = CONTEXT.Queue()
    try:
        return messages_a_second(partial(put_single, queue, what, count), queue.get, count, each)
    finally:
        queue.close()


# -- other queues ---------------------------------------------------------------------------------------------------


def send_to_zeromq(address: str, count: int) -> None:
    """The producer of a PUSH socket, which waits where the consumer is slow."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(address)
        for _ in range(count):
            socket.send(BODY)


def measure_zeromq(count: int) -> float:
    """Messages a second from a PUSH to a PULL socket over ipc."""
    address = f"ipc://@bench-{os.getpid()}-{time.monotonic_ns()}"
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.bind(address)
        return messages_a_second(partial(send_to_zeromq, address, count), socket.recv, count, 1)


def open_iceoryx2(name: str) -> tuple[Any, Any]:
    """A node, and the service of that name: a publisher waits where the buffer of 1 024 messages is full."""
    iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
    node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
    service = node.service_builder(iceoryx2.ServiceName.new(name)).publish_subscribe(Body)
    return node, service.subscriber_max_buffer_size(1_024).enable_safe_overflow(False).open_or_create()


def send_to_iceoryx2(name: str, count: int, taken: Any) -> None:
    """The producer of an iceoryx2 service, which sends copies; what it holds goes with it, so it stays until all are
    taken."""
    _node, service = open_iceoryx2(name)
    publisher, body = service.publisher_builder().create(), Body.from_buffer_copy(BODY)
    for _ in range(count):
        publisher.send_copy(body)
    taken.wait()


def measure_iceoryx2(count: int) -> float:
    """Messages a second through iceoryx2; its subscriber looks until there is one."""
    name = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    _node, service = open_iceoryx2(name)
    subscriber = service.subscriber_builder().buffer_size(1_024).create()

    def get() -> bytes:
        while (sample := subscriber.receive()) is None:
            pass
        body = bytes(sample.payload().contents)
        sample.delete()
        return body

    taken = CONTEXT.Event()
    return messages_a_second(partial(send_to_iceoryx2, name, count, taken), get, count, 1, taken.set)


# -- latency --------------------------------------------------------------------------------------------------------


def echo(take: Callable[[], bytes], give: Callable[[bytes], object], count: int) -> None:
    """The other process: whatever comes goes back."""
    for _ in range(count):
        give(take())


def trip_us(give: Callable[[bytes], object], take: Callable[[], bytes], count: int, percent: int) -> float:
    """Microseconds one way, half of a round trip, to a consumer that waits: the percentile of many."""
    take()
    trips = []
    for _ in range(count - 1):
        time.sleep(0.0005)  # until the other one sleeps
        began = time.perf_counter_ns()
        give(BODY)
        take()
        trips.append((time.perf_counter_ns() - began) / 2_000)
    return quantiles(trips, n=100)[percent - 1]


def ours_trip_us(count: int, percent: int) -> float:
    """Through two of our queues."""
    with make_queue(**POOL) as there, make_queue(**POOL) as back:
        other = CONTEXT.Process(target=echo, args=(there.get, back.put, count))
        other.start()
        there.put(BODY)
        value = trip_us(there.put, back.get, count, percent)
        other.join()
        return value


def pipe_trip_us(count: int, percent: int) -> float:
    """Through a pipe."""
    here, there = CONTEXT.Pipe()
    with here, there:
        other = CONTEXT.Process(target=echo, args=(there.recv_bytes, there.send_bytes, count))
        other.start()
        here.send_bytes(BODY)
        value = trip_us(here.send_bytes, here.recv_bytes, count, percent)
        other.join()
        return value


# -- recovery -------------------------------------------------------------------------------------------------------


def stay_positioned(name: str, ready: Connection) -> None:
    """A writer that has a position, and is killed before it moves the head."""

    def hook(request: Request) -> None:
        if isinstance(request, CompareAndSwap) and request.address == WRITE_HEAD:
            ready.send_bytes(b"!")
            signal.pause()

    queue: CircularQueue[bytes] = CircularQueue.attach(name, instruments=Instruments(hook=hook))
    queue.put(BODY)


def recovery_ms(threshold: float) -> float:
    """Milliseconds from the SIGKILL of a positioned writer until a message behind it is delivered."""
    with make_queue(threshold=threshold) as queue:
        here, there = CONTEXT.Pipe()
        writer = CONTEXT.Process(target=stay_positioned, args=(queue.name, there))
        writer.start()
        here.recv_bytes()
        queue.put(BODY)
        assert writer.pid is not None
        began = time.perf_counter()
        os.kill(writer.pid, signal.SIGKILL)
        queue.get()
        spent = time.perf_counter() - began
        writer.join()
        return max(spent * 1_000, 0.001)


def find_bound_ms(threshold: float) -> float:
    """What the time may be."""
    return 1_100 * threshold + 5


ROWS = (
    BenchRow(
        name="queue-single",
        about="shared memory, one message of 64 bytes a call, one producer and one consumer process",
        unit="messages/s",
        baseline_name="multiprocessing.Queue",
        prepare=compare(ours_single, partial(theirs, BODY, 1), (20_000,), (50,)),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=1.2,
        aim="1.5",
    ),
    BenchRow(
        name="queue-single-zeromq",
        about="the same against zeromq, PUSH and PULL over ipc, which loses what it holds with a process",
        unit="messages/s",
        baseline_name="pyzmq",
        prepare=compare(ours_single, measure_zeromq, (20_000,), (50,)),
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    BenchRow(
        name="queue-single-iceoryx2",
        about="the same against iceoryx2, a publisher and a subscriber that looks without a pause",
        unit="messages/s",
        baseline_name="iceoryx2",
        prepare=compare(ours_single, measure_iceoryx2, (20_000,), (50,)),
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    BenchRow(
        name="queue-batch",
        about="shared memory, blocks of 64 messages of 64 bytes",
        unit="messages/s",
        baseline_name="multiprocessing.Queue of lists of 64",
        prepare=compare(ours_batch, partial(theirs, BATCH, len(BATCH)), (40_000,), (10,)),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=1.0,
        aim="1 000 000 messages/s",
    ),
    *(
        BenchRow(
            name=f"queue-latency-{name}",
            about=f"a message to a consumer that waits, {name}",
            unit="us",
            baseline_name="multiprocessing.Pipe",
            prepare=compare(ours_trip_us, pipe_trip_us, (1_000, percent), (5, percent)),
            ratio=RatioKind.OURS_OVER_BASELINE,
        )
        for name, percent in (("p50", 50), ("p99", 99))
    ),
    *(
        BenchRow(
            name=name,
            about=f"SIGKILL of a positioned writer to the next delivery, threshold {text}",
            unit="ms",
            baseline_name="1.1 thresholds + 5 ms",
            prepare=compare(recovery_ms, find_bound_ms, (threshold,), (0.02,)),
            ratio=RatioKind.OURS_OVER_BASELINE,
            at_most=1.0,
        )
        for name, threshold, text in (("queue-recovery", 2.0, "2 s"), ("queue-recovery-short", 0.02, "20 ms"))
    ),
)
