"""Backlog: what other nodes have stored for a session, as far as its owner knows, and has not taken yet."""

from __future__ import annotations

from typing import NamedTuple

from statemachines.persistent_sessions.resume_record import ResumeRecord
from statemachines.persistent_sessions.writer_flow_record import DONE, DRAINING, FENCING


class Place(NamedTuple):
    """A row of a writer."""

    writer: str
    epoch: int
    number: int


def backlog_of(record: ResumeRecord, node: str) -> tuple[Place, ...]:
    """The last row of each writer but that of `node` that is not read to its end; of one that is fenced the end of
    that."""
    found = []
    for writer, flow in record.flows.items():
        if writer == node or flow.status is DONE:
            continue
        is_fenced = flow.status in (FENCING, DRAINING)
        place = (flow.below, 0) if is_fenced else (flow.epoch, flow.k - 1 + len(flow.buffer))
        found.append(Place(writer, *place))
    return tuple(sorted(found))


def is_taken(record: ResumeRecord, place: Place) -> bool:
    """The row, or the fence, and all before it."""
    flow = record.flows.get(place.writer)
    return flow is None or (flow.epoch, flow.taken) >= (place.epoch, place.number)
