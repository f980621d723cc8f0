"""Goals: what must become true once everything has healed: everybody is connected, everything has come, nothing is
left behind.

Ways that nothing heals are left (`Unreachable`).  A node that does not reach the database serves nobody, and what its
machines have asked stays open; all else holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statemachines.kernel import in_order
from statemachines.persistent_sessions.properties.delivered_messages import judge_rest
from statemachines.persistent_sessions.properties.session_owners import (
    judge_count,
    judge_losses,
    judge_takeover,
    list_unfinished,
)
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.resume_record import ResumeRecord
from statemachines_sim.cluster import Missing, SimCluster
from statemachines_sim.persistent_sessions.database import statements_of
from statemachines_sim.persistent_sessions.store_judge import StoreJudge


def find_missing(world: SimCluster, store: StoreJudge) -> Missing | None:
    """The first that is not true yet."""
    goals = (connects, complete, find_miscounted, ends, vanish)
    return next((found for goal in goals for found in goal(world, store)), None)


def connects(world: SimCluster, store: StoreJudge) -> Iterator[Missing]:
    """CONNECTS."""
    for node, one in sorted(world.processes.items()):
        process: Any = one
        if node.startswith("subscriber-") and not process.welcome:
            yield "CONNECTS", f"{node} is not connected"
        if node.startswith("publisher-") and process.unanswered:
            yield "CONNECTS", f"{node} is not answered: {len(process.unanswered)}"


def complete(world: SimCluster, store: StoreJudge) -> Iterator[Missing]:
    """COMPLETE."""
    for name, session in in_order(store.opened.current):
        book = store.sessions[session]
        for broken in judge_rest(book.delivered.find_outstanding(), (*sorted(book.packets), *book.queued)):
            yield broken.name, f"{name} ({session}): {broken.detail}"


def find_miscounted(world: SimCluster, store: StoreJudge) -> Iterator[Missing]:
    """COUNTED: where retention has removed nothing, no owner has counted anything as lost."""
    if store.retained:
        return
    for _, process in sorted(world.processes.items()):
        for party, machine in sorted(process.host.nodes.items()):
            for broken in judge_losses(party, getattr(machine.record, "delivery", None)):
                yield broken.name, broken.detail


def has_database(world: SimCluster, node: str) -> bool:
    """Whether nothing that lasts is between the node and the database, in either direction."""
    return not world.network.lasting & {(node, DATABASE), (DATABASE, node)}


def ends(world: SimCluster, store: StoreJudge) -> Iterator[Missing]:
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
            for broken in (*judge_takeover(party, record), *list_unfinished(party, record)):
                yield broken.name, broken.detail
    clients = [node for node, one in world.processes.items() if getattr(one, "has_session", False)]
    for broken in judge_count(owners, len(clients)):
        yield broken.name, broken.detail


def vanish(world: SimCluster, store: StoreJudge) -> Iterator[Missing]:
    """VANISH."""
    if not store.collects:
        return
    statements = statements_of(world)
    for table in ("session_rows", "messages"):
        ((count,),) = statements.rows(f"SELECT count(*) FROM @{table}")
        if count:
            yield "VANISH", f"{count} rows are left in {table}"
