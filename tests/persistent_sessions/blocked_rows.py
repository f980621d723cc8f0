"""Rows that wait for older ones of other writers."""

from msgspec.structs import replace
from session_world import queued

from statemachines.kernel import Map
from statemachines.persistent_sessions.resume_record import BlockedQueue, BlockedRow, release_rows


def row(number, stored_ns, qos=1):
    """A row that was committed then."""
    return replace(queued(number, message=f"m{stored_ns}"), stored_ns=stored_ns, qos=qos)


def block(record, **queues):
    """With these rows that wait for all that is older, where of each writer all is taken that was stored before 100."""
    flows = Map({name: replace(flow, complete_ns=100) for name, flow in record.flows.items()})
    blocked = {name: BlockedQueue().add(BlockedRow(1, one, one.stored_ns) for one in queue)
               for name, queue in queues.items()}  # fmt: skip
    return replace(record, flows=flows, known_ns=20_000, blocked_rows=Map(blocked))


def complete(record, **until_ns):
    """Of each of these writers all is taken that was stored before."""
    flows = record.flows
    for writer, complete_ns in until_ns.items():
        flows = flows.set(writer, replace(flows[writer], complete_ns=complete_ns))
    return replace(record, flows=flows)


def release(record):
    """The record afterwards, and of each writer when its rows were stored."""
    after, takes = release_rows(record)
    return after, [(take.writer, [one.stored_ns for one in take.rows]) for take in takes]
