"""Generations: in which order the streams of a shard are granted (S9), and streams that the store has dropped."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.assignment import REVOKED
from statemachines.shared_subscriptions.leader_record import SERVING
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.properties.granted_stream import check_generations, list_earlier
from statemachines.shared_subscriptions.stream_store import SERVICE, rank_of, stream_id
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal
from statemachines_spec.shared_subscriptions.stores import StoreLocal

NONE, ASSIGNED, READ = range(3)
"""What a leader makes of a stream: somebody holds it, or it has been read to its end."""


def streams_of(topics: Iterable[str], script: tuple[str, ...]) -> tuple[str, ...]:
    """Every stream that there may be: those of the beginning, and what is appended by a script of `stores.script`."""
    generation, streams = 0, [stream_id(topic, 1, 0) for topic in topics]
    for line in script:
        generation += line == "rotate"
        if line not in ("rotate", "drop"):
            streams.append(stream_id(line, 1, generation))
    return tuple(dict.fromkeys(streams))


def in_generations(hosts: Iterable[str], streams: tuple[str, ...]) -> tuple[Property, ...]:
    """S9 of every leader; and, against an empty model, that the turn of a later generation comes."""
    made: list[Property] = []
    store = View(SERVICE, 1 << len(streams), lambda local: _there(local, streams))
    later = [number for number, stream in enumerate(streams) if rank_of(stream)[1] > 0]
    codes = list(product(range(3), repeat=len(streams)))

    def holds(code: int, there: int) -> bool:
        known = dict(zip(streams, codes[code], strict=True))
        present = [stream for number, stream in enumerate(streams) if there >> number & 1]
        return not any(
            check_generations("a leader", stream, list_earlier(stream, present), lambda other: known[other] == READ)
            for stream in streams
            if known[stream] == ASSIGNED
        )

    def turn(code: int) -> bool:
        return any(codes[code][number] == ASSIGNED for number in later)

    for host in hosts:
        view = View(host, len(codes), lambda local: _encode_known(local, streams))
        text = "no stream is assigned while one of an earlier generation of its shard is not read to its end"
        made.append(Always(f"S9 {host}", text, (view, store), holds))
        made.append(Sometimes(f"S9 {host} goes on", "a stream of a later generation is assigned", (view,), turn))
    return tuple(made)


def make_vanished(hosts: Iterable[str]) -> tuple[Property, ...]:
    """What the store has dropped is being taken back from its owner at once, and sometimes somebody has it."""
    views = tuple(View(host, 3, _vanished) for host in hosts)
    return (
        Always("vanished", "an assigned stream that has vanished is revoked", views, lambda *each: 1 not in each),
        Sometimes("vanished in use", "a stream vanishes that somebody has", views, lambda *each: 2 in each),
    )


def _vanished(local: LeaderHostLocal) -> int:
    """0: nothing that is assigned has vanished; 1: it has, and is not being taken back; 2: it is."""
    if local.party is None:
        return 0
    record = local.party.record
    gone = [one for stream, one in in_order(record.assignments) if stream not in record.streams]
    return 0 if not gone else 2 if all(one.status is REVOKED for one in gone) else 1


def _there(local: StoreLocal, streams: tuple[str, ...]) -> int:
    return sum(1 << number for number, stream in enumerate(streams) if stream in local.state.by_id)


def _encode_known(local: LeaderHostLocal, streams: tuple[str, ...]) -> int:
    """The code of what a leader makes of each stream: the last one counts single."""
    if local.party is None or local.party.record.status not in SERVING:
        return 0
    record, code = local.party.record, 0
    for stream in streams:
        one, known = record.assignments.get(stream), record.streams.get(stream)
        progress = max(0 if one is None else one.progress, 0 if known is None else known.progress)
        code = 3 * code + (READ if progress == END_OF_STREAM else NONE if one is None else ASSIGNED)
    return code


__all__ = ["in_generations", "make_vanished", "streams_of"]
