"""SessionMetrics: what a node of sessions counts, for `MetricsEndpoint`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from statemachines.drivers.metrics_endpoint import Metric, MetricsEndpoint
from statemachines.drivers.tcp import parse_address
from statemachines.persistent_sessions.session_tables import measure_load
from statemachines.persistent_sessions.times import MS

if TYPE_CHECKING:
    from statemachines.drivers.persistent_sessions.collector_requests import Backlog
    from statemachines.drivers.persistent_sessions.session_node import SessionNode
    from statemachines.drivers.persistent_sessions.store import SessionStore
    from statemachines.drivers.persistent_sessions.upkeep import CollectorCounts


def read_metrics(node: SessionNode) -> list[Metric]:
    """What it has in hand, and what it has counted since it began."""
    host = node.machines
    load = measure_load(map(host.resume_of, host.owners))
    writing = sum(len(host.nodes[party].record.inbox) for party in host.writers.values())
    return [
        Metric("sessions_connected", "gauge", "clients whose sessions this node has", len(host.owners)),
        Metric("sessions_resumed", "gauge", "sessions that this node delivers", load.resumed),
        Metric("messages_in_flight", "gauge", "sent and not acknowledged", load.in_flight),
        Metric("messages_queued", "gauge", "read, and waiting for a client", load.queued),
        Metric("rows_blocked", "gauge", "read, and waiting for older rows", load.blocked),
        Metric("rows_unwritten", "gauge", "handed over, and waiting for a writer", writing),
        Metric("requests_waiting", "gauge", "requests that wait for the store", len(node.request_queue)),
        Metric("store_silent_seconds", "gauge", "how long the store owes an answer", silent_s(node)),
        *list_backlog(node.backlog, node.messages_dropped),
        Metric(
            "direct_messages_dropped",
            "counter",
            "messages of QoS 0 for clients that were gone, or whose node was out of reach or slow",
            node.reception.direct.dropped,
        ),
    ]


def read_collector_metrics(store: SessionStore, counts: CollectorCounts) -> list[Metric]:
    """The same of a collector alone, by the same names."""
    return list_backlog(store.backlog, counts.messages_dropped)


def list_backlog(backlog: Backlog | None, dropped: int) -> list[Metric]:
    """What waits in the store, once a round of the collector has found it, and how many messages it has dropped."""
    found = [
        Metric("messages_dropped", "counter", "dropped since sessions had more waiting than they may", dropped),
    ]
    if backlog is not None:
        about = "in the store, at most, as of the collector's last round"
        found += [
            Metric("messages_waiting", "gauge", f"wait for sessions {about}", backlog.messages),
            Metric("bytes_waiting", "gauge", f"payload that waits for sessions {about}", backlog.size_bytes),
            Metric("messages_waiting_largest", "gauge", f"wait for the session with most {about}", backlog.largest),
        ]
    return found


def find_trouble(node: SessionNode) -> str:
    """Why it serves nobody ("": it does)."""
    return f"the store has not answered for {silent_s(node):.1f} s" if node.reception.is_cut_off else ""


def silent_s(node: SessionNode) -> float:
    """How long the store owes an answer."""
    return node.request_queue.silent_ns / MS / 1_000


def watch_node(node: SessionNode, address: str) -> AbstractAsyncContextManager[None]:
    """Its counters and its health can be read at `address` meanwhile ("": nowhere)."""
    return _answer_at(address, lambda: read_metrics(node), lambda: find_trouble(node))


def watch_collector(store: SessionStore, counts: CollectorCounts, address: str) -> AbstractAsyncContextManager[None]:
    """The same of a collector alone."""
    return _answer_at(address, lambda: read_collector_metrics(store, counts), lambda: counts.trouble)


@asynccontextmanager
async def _answer_at(address: str, read: Callable[[], list[Metric]], find: Callable[[], str]) -> AsyncIterator[None]:
    if not address:
        yield
        return
    async with MetricsEndpoint(parse_address(address), read, find) as endpoint:
        print("metrics at http://{}:{}/metrics".format(*endpoint.address), flush=True)
        yield
