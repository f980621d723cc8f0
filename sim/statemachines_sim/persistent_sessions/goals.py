"""Goals: what must become true once everything has healed: everybody is connected, everything has come, nothing is
left behind.

Ways that nothing heals are left (`Unreachable`).  A node that does not reach the database serves nobody, and what its
machines have asked stays open; all else holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.resume_record import NORMAL, YIELDING, ResumeRecord
from statemachines.persistent_sessions.writer_flow_record import DONE
from statemachines_sim.cluster import Cluster, Missing
from statemachines_sim.persistent_sessions.database import statements_of
from statemachines_sim.persistent_sessions.store_judge import StoreJudge


def missing(world: Cluster, store: StoreJudge) -> Missing | None:
    """The first that is not true yet."""
    goals = (connects, complete, find_miscounted, ends, vanish)
    return next((found for goal in goals for found in goal(world, store)), None)


def connects(world: Cluster, store: StoreJudge) -> Iterator[Missing]:
    """CONNECTS."""
    for node, one in sorted(world.processes.items()):
        process: Any = one
        if node.startswith("subscriber-") and not process.welcome:
            yield "CONNECTS", f"{node} is not connected"
        if node.startswith("publisher-") and process.unanswered:
            yield "CONNECTS", f"{node} is not answered: {len(process.unanswered)}"


def complete(world: Cluster, store: StoreJudge) -> Iterator[Missing]:
    """COMPLETE."""
    for name, client in sorted(store.clients.items()):
        book = store.sessions.get(client.current)
        if book is None:
            continue
        outstanding = next(book.outstanding(), None)
        if outstanding is not None:
            yield "COMPLETE", f"{name} ({client.current}) has not had {outstanding}"
        if book.packets or book.queued:
            yield "COMPLETE", f"{name} ({client.current}) has packets that are not done: {sorted(book.packets)}"


def find_miscounted(world: Cluster, store: StoreJudge) -> Iterator[Missing]:
    """COUNTED: where retention has removed nothing, no owner has counted anything as lost."""
    if store.retained:
        return
    for _, process in sorted(world.processes.items()):
        for party, machine in sorted(process.host.nodes.items()):
            delivery = getattr(machine.record, "delivery", None)
            if delivery is not None and delivery.lost:
                yield "COUNTED", f"{party} has counted {delivery.lost} as lost, and nothing is"


def has_database(world: Cluster, node: str) -> bool:
    """Whether nothing that lasts is between the node and the database, in either direction."""
    return not world.network.lasting & {(node, DATABASE), (DATABASE, node)}


def ends(world: Cluster, store: StoreJudge) -> Iterator[Missing]:
    """ENDS, TAKES: an owner for each connected client, in normal operation, and no more than that."""
    owners = 0
    for node, process in sorted(world.processes.items()):
        if not has_database(world, node):
            continue
        for party, machine in sorted(process.host.nodes.items()):
            record = machine.record
            if not isinstance(record, ResumeRecord):
                continue
            owners += 1
            if record.status is YIELDING:
                yield "TAKES", f"{party} has yielded, and is still there"
            if record.status is not NORMAL:
                yield "ENDS", f"{party} is {record.status.value}"
            for writer, flow in sorted(record.flows.items()):
                if flow.status is not DONE:
                    yield "ENDS", f"{party} and {writer} are {flow.status.value}"
    clients = [node for node, one in world.processes.items() if getattr(one, "has_session", False)]
    if owners > len(clients):
        yield "ENDS", f"there are {owners} owners of {len(clients)} clients"


def vanish(world: Cluster, store: StoreJudge) -> Iterator[Missing]:
    """VANISH."""
    if not store.collects:
        return
    statements = statements_of(world)
    for table in ("session_rows", "messages"):
        ((count,),) = statements.rows(f"SELECT count(*) FROM @{table}")
        if count:
            yield "VANISH", f"{count} rows are left in {table}"
