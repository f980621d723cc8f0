"""Deliveries: properties of what applications get (S5, S6, S8, S12, S13, S14, S22 and L5 of its properties.md).

Generations: in which order the streams of a shard are granted (S9), and streams that the store has dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from statemachines.kernel import in_order, node_of
from statemachines.shared_subscriptions.assignment import GRANTED, GRANTING, REVOKED
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.leader_record import SERVING
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.properties.delivered_messages import (
    check_durable,
    check_marked,
    check_topic,
    compile_filter,
)
from statemachines.shared_subscriptions.properties.delivery_right import are_disjoint, reads_stream
from statemachines.shared_subscriptions.properties.granted_stream import (
    check_generations,
    check_grant_of_end,
    list_earlier,
)
from statemachines.shared_subscriptions.properties.known_progress import KnownProgress, is_unread, passes
from statemachines.shared_subscriptions.properties.offset_ranges import OffsetRanges
from statemachines.shared_subscriptions.session_record import Deliver
from statemachines.shared_subscriptions.stream import ABSENT
from statemachines.shared_subscriptions.stream_store import SERVICE, rank_of, stream_id
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, Stepwise, View
from statemachines_spec.shared_subscriptions import consumer, leader_host
from statemachines_spec.shared_subscriptions.account import AccountLocal, bits, prefix, progress_in
from statemachines_spec.shared_subscriptions.consumer import ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal
from statemachines_spec.shared_subscriptions.session_consumer import ACCOUNT, SessionLocal
from statemachines_spec.shared_subscriptions.stores import StoreLocal

Streams = tuple[str, ...]

UNKNOWN = -1
"""Of a stream that has not ended nothing is at its end."""


# -- views ----------------------------------------------------------------------------------------------------------


def encode_progress(values: Iterable[int], offsets: int) -> int:
    """A progress for each stream as one number; the end of a stream is one more than all its offsets."""
    code = 0
    for value in values:
        code = code * (offsets + 2) + min(value, offsets + 1)
    return code


def decode_progress(code: int, streams: int, offsets: int) -> list[int]:
    """The values that `coded` was given, ends as `offsets` + 1."""
    values = []
    for _ in range(streams):
        code, value = divmod(code, offsets + 2)
        values.append(value)
    return values[::-1]


def read_acknowledged(streams: Streams, offsets: int) -> View:
    """Of each stream, how far all is acknowledged."""
    size = (offsets + 2) ** len(streams)
    return View(ACCOUNT, size, lambda local: encode_progress((prefix(mask) for mask in local.acked), offsets))


def read_consumer_claims(streams: Streams) -> Callable[[ConsumerLocal], Iterable[int]]:
    """What the borrower of a consumer reports of each stream that it holds."""

    def claimed(local: ConsumerLocal) -> Iterable[int]:
        held = {} if local.party is None else local.party.record.streams
        return (held[name].progress if name in held and held[name].status is not ABSENT else 0 for name in streams)

    return claimed


def read_leader_claims(streams: Streams) -> Callable[[LeaderHostLocal], Iterable[int]]:
    """What a leader believes of each stream."""

    def claimed(local: LeaderHostLocal) -> Iterable[int]:
        if local.party is None:
            return (0 for _ in streams)
        record = local.party.record
        return (
            max(
                record.streams[name].progress if name in record.streams else 0,
                record.assignments[name].progress if name in record.assignments else 0,
                record.loaded.get(name, 0),
            )
            for name in streams
        )

    return claimed


def read_store_claims(streams: Streams) -> Callable[[StoreLocal], Iterable[int]]:
    """What is durable of each stream."""

    def claimed(local: StoreLocal) -> Iterable[int]:
        known = progress_in(local)
        return (known.get(name, 0) for name in streams)

    return claimed


def session_may_deliver(streams: Streams) -> Callable[[SessionLocal], int]:
    """The streams that a session may hand messages of over, or still has some in hand, under a lease, as bits."""

    def view(local: SessionLocal) -> int:
        if local.session is None or local.mode not in (*consumer.GOING_ON, consumer.PAUSED):
            return 0
        record = local.session.record
        held = {one.stream for _, one in in_order(record.readings) if reads_stream(record, one.owner, one.stream)}
        return sum(1 << number for number, stream in enumerate(streams) if stream in held)

    return view


def out_of_order(local: SessionLocal) -> int:
    """Whether something is acknowledged behind a gap."""
    return int(local.session is not None and any(one.acked for _, one in in_order(local.session.record.readings)))


def finishing(local: SessionLocal) -> int:
    """Whether a stream is to be finished and something of it is still in hand."""
    readings = () if local.session is None else in_order(local.session.record.readings)
    return int(any(one.finishing and one.progress < one.delivered for _, one in readings))


# -- over states ----------------------------------------------------------------------------------------------------


def no_loss(consumers: Streams, hosts: Streams, streams: Streams, offsets: int, ended: bool) -> tuple[Always, ...]:
    """S6, for every progress that anybody relies on."""
    base = read_acknowledged(streams, offsets)

    def holds(known: int, claimed: int) -> bool:
        pairs = zip(
            decode_progress(known, len(streams), offsets), decode_progress(claimed, len(streams), offsets), strict=True
        )
        stored = offsets if ended else UNKNOWN
        return not any(passes(END_OF_STREAM if claim > offsets else claim, have, stored) for have, claim in pairs)

    def over(name: str, claimed: Callable[[Any], Iterable[int]]) -> Always:
        view = View(name, base.size, lambda local: encode_progress(claimed(local), offsets))
        text = f"no progress that {name} relies on passes a message that nobody has acknowledged"
        return Always(f"S6 {name}", text, (base, view), holds)

    return (
        over(GROUP_STORE, read_store_claims(streams)),
        *(over(name, read_leader_claims(streams)) for name in hosts),
        *(over(name, read_consumer_claims(streams)) for name in consumers),
    )


def make_ended_not_granted(hosts: Streams, streams: Streams) -> tuple[Always, ...]:
    """S8, over what is durable: also the next leaders never grant a stream whose end was committed."""

    def view_ended(local: StoreLocal) -> int:
        known = progress_in(local)
        return sum(1 << number for number, name in enumerate(streams) if known.get(name) == END_OF_STREAM)

    def granted(local: LeaderHostLocal) -> int:
        if local.party is None or local.mode is leader_host.LATE or local.party.record.status not in SERVING:
            return 0
        assignments = local.party.record.assignments
        return sum(
            1 << number
            for number, name in enumerate(streams)
            if name in assignments and assignments[name].status in (GRANTING, GRANTED)
        )

    size = 1 << len(streams)
    return tuple(
        Always(
            f"S8 {name}",
            "a stream whose end is durable is granted to nobody",
            (View(GROUP_STORE, size, view_ended), View(name, size, granted)),
            lambda ends, grants: not ends & grants,
        )
        for name in hosts
    )


def sessions_exclusive(consumers: Streams, streams: Streams) -> Always:
    """S5, by what sessions do, not by what their borrowers know."""
    views = tuple(View(name, 1 << len(streams), session_may_deliver(streams)) for name in consumers)
    text = "no two sessions may deliver one stream at the same time"
    return Always("S5 sessions", text, views, lambda *masks: are_disjoint(masks))


def happening(
    consumers: Streams, streams: Streams, published: tuple[int, ...], *, commits: bool, ended: bool, acks: bool
) -> tuple[Sometimes, ...]:
    """Against empty models: messages are delivered, acknowledged, committed; streams end."""
    offsets = max(published)
    base = read_acknowledged(streams, offsets)
    everything = encode_progress(published, offsets)
    found = [Sometimes("all acknowledged", "everything published is", (base,), lambda code: code == everything)]
    store = View(GROUP_STORE, base.size, lambda local: encode_progress(read_store_claims(streams)(local), offsets))
    if commits:
        found.append(Sometimes("durable", "some progress is committed", (store,), bool))
    if commits and ended:
        ends = encode_progress((offsets + 1 for _ in streams), offsets)
        found.append(
            Sometimes("durable end", "the end of every stream is committed", (store,), lambda code: code == ends)
        )
    for name in consumers:
        if acks and offsets > 1:
            view = View(name, 2, out_of_order)
            found.append(Sometimes(f"{name} out of order", "acknowledges behind a gap", (view,), bool))
    return tuple(found)


def sometimes_in_hand(consumers: Streams) -> Sometimes:
    """A stream is taken from somebody who has messages of it in hand."""
    views = tuple(View(name, 2, finishing) for name in consumers)
    return Sometimes("in hand", "somebody must finish a stream with messages in hand", views, lambda *on: any(on))


def make_redelivered(consumers: Streams, streams: Streams, offsets: int) -> tuple[Sometimes, ...]:
    """Beside S13, where there are faults: what somebody has acknowledged is in somebody's hands again."""
    size = 1 << offsets * len(streams)
    known = View(ACCOUNT, size, lambda local: side_by_side(local.acked, offsets))
    return tuple(
        Sometimes(
            f"{name} again",
            "a message that was acknowledged before is delivered again",
            (known, View(name, size, lambda local: side_by_side(in_hand(local, streams), offsets))),
            lambda acked, held: bool(acked & held),
        )
        for name in consumers
    )


def side_by_side(masks: Iterable[int], offsets: int) -> int:
    """The masks of all streams as one."""
    whole = 0
    for mask in masks:
        whole = whole << offsets | mask
    return whole


def in_hand(local: SessionLocal, streams: Streams) -> Iterable[int]:
    """Of each stream, what is delivered and not acknowledged."""
    masks = dict.fromkeys(streams, 0)
    for _, reading in () if local.session is None else in_order(local.session.record.readings):
        mask = bits(min(reading.progress, reading.delivered), reading.delivered - 1)
        for first, last in in_order(reading.acked):
            mask &= ~bits(first, last)
        masks[reading.stream] = mask
    return masks.values()


# -- over steps -----------------------------------------------------------------------------------------------------


def end_absorbs(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S8: a leader that knows that a stream has ended assigns it no more, and never forgets it."""
    if not isinstance(before, LeaderHostLocal) or before.party is None or after.party is None:
        return True
    old, new = before.party.record, after.party.record
    if old.id != new.id:
        return True
    for stream, known in in_order(old.streams):
        was = old.assignments.get(stream)
        at = max(known.progress, was.progress if was is not None else 0)
        now, later = new.assignments.get(stream), new.streams.get(stream)
        if now is not None and (was is None or now.grant != was.grant) and check_grant_of_end(new.id, stream, at):
            return False
        kept = max(later.progress if later is not None else at, now.progress if now is not None else 0)
        if any(one.name == "S8" for one in KnownProgress(at).observe(stream, kept, "accepted")[1]):
            return False
    return True


END_ABSORBS = Stepwise("S8", "a leader never assigns a stream again whose end it knows, nor forgets it", end_absorbs)


def over_deliveries(streams: Streams, filters: Mapping[str, str]) -> tuple[Stepwise, ...]:
    """S12, S13, S14, S22: of every message that is handed over."""
    place = {stream: number for number, stream in enumerate(streams)}

    def judged(fresh: Callable[[AccountLocal, Deliver], bool]) -> Callable[[str, Any, Any, Any], bool]:
        return lambda actor, before, event, after: not isinstance(event, Deliver) or fresh(before, event)

    patterns = {name: compile_filter(topic_filter) for name, topic_filter in filters.items()}

    def matches(before: AccountLocal, event: Deliver) -> bool:
        return not check_topic(event, patterns[node_of(event.owner)])

    def is_excused(before: AccountLocal, event: Deliver) -> bool:
        return not before.once[place[event.stream]].observe(event)[1]

    def is_not_accepted(before: AccountLocal, event: Deliver) -> bool:
        return not check_durable(event, before.durable[place[event.stream]])

    def is_marked(before: AccountLocal, event: Deliver) -> bool:
        mask = before.acked[place[event.stream]]
        return not check_marked(
            event, OffsetRanges(tuple((at, at) for at in range(mask.bit_length()) if mask >> at & 1))
        )

    def is_next(before: AccountLocal, event: Deliver) -> bool:
        known = (one.place for one in before.places if (one.borrower, one.stream) == (event.owner, event.stream))
        return all(event.grant > one.grant or (event.grant == one.grant and not one.observe(event)[1]) for one in known)

    return (
        Stepwise("S12", "only what matches the filter is delivered", judged(matches)),
        Stepwise("S13", "nothing is delivered twice without a reason", judged(is_excused)),
        Stepwise("S13 durable", "nothing below durable progress is delivered", judged(is_not_accepted)),
        Stepwise("S22", "what was acknowledged before is delivered as a repeat", judged(is_marked)),
        Stepwise("S14", "within a grant offsets increase, without holes", judged(is_next)),
    )


def obligations(streams: Streams, published: tuple[int, ...]) -> tuple[Eventually, ...]:
    """L5."""
    base = read_acknowledged(streams, max(published))
    text = "every published message is acknowledged"

    def unread(code: int) -> bool:
        known = decode_progress(code, len(streams), max(published))
        return any(is_unread(have, count) for have, count in zip(known, published, strict=True))

    return (Eventually("L5", text, (base,), unread),)


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
