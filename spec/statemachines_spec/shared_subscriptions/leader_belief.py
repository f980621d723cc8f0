"""Leader belief: no progress that a leader goes by, or that is committed, passes what the stream store holds (S16)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.properties.known_progress import is_stored
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.shared_subscriptions.account import progress_in
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal
from statemachines_spec.shared_subscriptions.stores import StoreLocal

MOST = 14
"""Progress is told apart up to here; beyond it stands for all."""

END = MOST + 1
SIZE = END + 1
GONE = 2 * SIZE


def believes(hosts: tuple[str, ...], streams: tuple[str, ...]) -> tuple[Property, ...]:
    """S16, of every stream: committed progress, and what each leader grants onward or stages."""
    text = "no progress beyond what is stored, and no end of a stream that goes on"
    views: dict[str, Callable[[str, Any], int]] = {
        group_store.SERVICE: read_committed,
        **dict.fromkeys(hosts, read_believed),
    }
    return tuple(
        Always(
            f"S16 {name} {stream}",
            text,
            (
                View(name, SIZE, partial(view, stream)),
                View(stream_store.SERVICE, GONE + 1, partial(read_stored, stream)),
            ),
            is_believable,
        )
        for stream in streams
        for name, view in views.items()
    )


def make_refusal(hosts: Iterable[str]) -> Sometimes:
    """Against consumers that never lie: a leader took streams back from all its members."""
    views = tuple(View(host, 2, _has_nobody) for host in hosts)
    return Sometimes("S16 refused", "a leader that has granted a stream has no member any more", views, any_of)


def is_believable(progress: int, size: int) -> bool:
    """`size`: twice the count, and 1 more where the stream has ended; of a stream that is gone nothing is asked."""
    if size == GONE:
        return True
    return is_stored(END_OF_STREAM if progress == END else progress, size >> 1, bool(size & 1))


def any_of(*each: int) -> bool:
    """One of them."""
    return any(each)


def code(progress: int) -> int:
    """A progress, as far as it is told apart."""
    return END if progress == END_OF_STREAM else min(progress, MOST)


def read_committed(stream: str, local: StoreLocal) -> int:
    """The durable progress of a stream."""
    return code(progress_in(local).get(stream, 0))


def read_believed(stream: str, local: LeaderHostLocal) -> int:
    """What the leader of a host would grant onward, stage, or commit next."""
    if local.party is None:
        return 0
    record = local.party.record
    known, assignment = record.streams.get(stream), record.assignments.get(stream)
    said = [one.progress for one in (known, assignment) if one is not None]
    return code(max(said, default=0))


def read_stored(stream: str, local: StoreLocal) -> int:
    """How far a stream goes."""
    found = local.state.by_id.get(stream)
    return GONE if found is None else 2 * min(found.count, MOST) + found.ended


def _has_nobody(local: LeaderHostLocal) -> int:
    record = None if local.party is None else local.party.record
    return int(record is not None and record.grant > 0 and not record.members)
