"""Bugs: mistakes that can be planted in the machines of persistent sessions; each is found by exploring.

Bugs of the time of a store: mistakes that can be planted in it.  No explored system has a clock that leaps; scenario
`leaping_clock` has one.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from msgspec.structs import replace

from statemachines.drivers.persistent_sessions import sql
from statemachines.kernel import STAY, Ask, Event, Map, Send, SetTimer, keys_in_order
from statemachines.kernel.row import Delegate
from statemachines.persistent_sessions import (
    delivery,
    in_flight,
    request,
    resume_actions,
    resume_record,
    session_host_record,
    session_tables,
    writer_actions,
    writer_flow,
)
from statemachines.persistent_sessions.delivery import DELIVERY, Change
from statemachines.persistent_sessions.in_flight import IN_FLIGHT, Resend
from statemachines.persistent_sessions.in_flight_record import DONE as SETTLED
from statemachines.persistent_sessions.in_flight_record import SENT
from statemachines.persistent_sessions.message import Live, Pubrec, Pubrel, is_over, unfold_row
from statemachines.persistent_sessions.request import (
    DATABASE,
    MarkDelivered,
    RowFenced,
    RowRead,
    RowStored,
    RowUnclear,
    StateCommitted,
)
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.times import MS
from statemachines.persistent_sessions.writer import WRITER
from statemachines.persistent_sessions.writer_flow import (
    DONE,
    DRAINING,
    FENCING,
    FINALIZING,
    SYNCING,
    WAITING,
    WRITER_FLOW,
    LinkLost,
    MarkerTimeout,
    PollDue,
    Room,
    Settled,
    Take,
    WriterDown,
)
from statemachines.persistent_sessions.writer_record import IDLE, READING, STORING
from statemachines_spec.bug import Bug, change_rows, combine, replace_call, wrap_call
from statemachines_spec.persistent_sessions import client_inbox_bugs, group_bugs, publication_bugs, takeover_bugs
from statemachines_spec.persistent_sessions.clients import on


def without_lead(next_time: Any) -> Any:
    """What is kept of a leap is that ages stand still, and not how far it went."""
    return lambda known, clock_ns, expected_ns: replace(next_time(known, clock_ns, expected_ns), ahead_ns=0)


CLOCK_BUGS = (
    Bug("leap-is-believed", "a clock of the database that is set ahead counts at once", "PS-291",
        "the look at the steady clock",
        replace_call(session_host_record, "has_leapt", lambda shown_ns, expected_ns: False)),
    Bug("lead-is-forgotten", "how far a clock has leapt is not kept, so a clock that is accepted leaps again", "PS-293",
        "the lead", wrap_call(sql, "next_time", without_lead)),
)  # fmt: skip
"""Each with a sentence of its own."""


# -- what is done instead -------------------------------------------------------------------------------------------


def always(record: Any, event: Event) -> bool:
    return True


def never(record: Any, event: Event) -> bool:
    return False


def keep_still(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def whatever_is_visible(record: Any, found: Any) -> Any:
    """Rows from the marker on are taken as well."""
    rows = (row for one in found if one.epoch == record.epoch for row in one.rows)
    return writer_flow.select_contiguous(rows, record.taken)


def with_the_marker(record: Any, found: Any) -> Any:
    rows = (row for one in found if one.epoch == record.epoch for row in one.rows if row.number <= record.k)
    return writer_flow.select_contiguous(rows, record.taken)


def whatever_follows(rows: Any, taken: int) -> Any:
    """A hole is stepped over."""
    return tuple(row for row in rows if row.number > taken)


def marker_was_seen(record: Any, event: Any) -> bool:
    return bool(record.seen or writer_flow.shows_marker(record, event))


def drop_buffer(record: Any, event: Any, now_ns: int) -> Any:
    return replace(record, taken=record.k - 1, buffer=()), ()


def keep_buffer(record: Any, event: Any, now_ns: int) -> Any:
    """A fresh marker, and what was kept for the one before."""
    after, effects = ask_fresh(record, event, now_ns)
    return replace(after, buffer=record.buffer), effects


ask_fresh = writer_flow.ask_fresh


def raise_nothing(fence: Any) -> Any:
    """A writer is read as if it were fenced, and goes on under its epoch."""

    def changed(record: Any, below: int, gone: bool) -> Any:
        after, (asked,) = fence(record, below, gone)
        request = replace(asked.request, below=record.epoch)
        return after, (Ask(asked.service, request),)

    return changed


def forget_rows(record: Any, event: Any, now_ns: int) -> Any:
    return replace(record, epoch=event.below, taken=0, heard=0), ()


def just_above(record: Any, event: Any, now_ns: int) -> Any:
    return writer_flow.fence(record, record.epoch + 1, True)


def show_in_database_alone(record: Any, event: Any, now_ns: int) -> Any:
    record = replace(record, k=record.last + 1)
    return writer_actions.take_next(record)


def counts_the_marker(record: Any, event: Any, now_ns: int) -> Any:
    after, effects = show_and_go_on(record, event, now_ns)
    return replace(after, last=after.last + 1), effects


show_and_go_on = writer_actions.show_and_go_on
send_and_go_on = writer_actions.send_and_go_on


def show_one_too_many(record: Any, event: Any, now_ns: int) -> Any:
    marker = record.job.marker
    record = replace(record, k=record.last + 2)
    effect = writer_actions.send_marker(record, marker)
    record, more = writer_actions.take_next(record)
    return record, (effect, *more)


put = writer_actions.put


def answer_alone(record: Any, effects: Any) -> Any:
    """Publishers are answered, and nothing is sent."""
    return record, tuple(one for one in effects if not isinstance(one, Send))


def put_first_alone(put: Any) -> Any:
    """Of a range the first row alone is asked for."""

    def changed(record: Any) -> Any:
        after, (asked,) = put(record)
        rows = getattr(asked.request, "rows", ())
        return after, (Ask(asked.service, replace(asked.request, rows=rows[:1])) if rows else asked,)

    return changed


def store_first_alone(store_range: Any) -> Any:
    return lambda epoch, rows: store_range(epoch, rows[:1])


def early(record: Any, event: Any, now_ns: int) -> Any:
    """What waits is not looked at."""
    record, effects = writer_actions.send_stored(record, 0)
    return replace(record, job=None), effects


def same_number_under_next_epoch(record: Any, event: Any, now_ns: int) -> Any:
    return put(replace(record, epoch=event.epoch, k=0))


def same_epoch(record: Any, event: Any, now_ns: int) -> Any:
    """The row is stored nowhere, and its publisher answered."""
    return writer_actions.send_and_go_on(replace(record, epoch=event.epoch), RowStored(), now_ns)


def send_at_once(commit: Any) -> Any:
    """What is taken is sent, and then committed."""

    def changed(record: Any, changes: Any, now_ns: int) -> Any:
        record, asked, seen = commit(record, changes, now_ns)
        record, effects, more = delivery.send_committed(record, StateCommitted(), now_ns)
        return record, (*effects, *asked), (*seen, *more)

    return changed


def mark_at_once(commit: Any) -> Any:
    """Rows are marked when they are taken, and not when that is committed."""

    def changed(record: Any, changes: Any, now_ns: int) -> Any:
        record, asked, seen = commit(record, changes, now_ns)
        session = record.session
        marks = tuple(
            Ask(DATABASE, MarkDelivered(session, one.writer, one.epoch, one.first_number, one.last_number))
            for one in record.marks
        )
        return replace(record, marks=()), (*marks, *asked), seen

    return changed


def positions_not_kept(taken: Any) -> Any:
    """What was taken is in the state; up to where is not."""

    def changed(record: Any, event: Any) -> Any:
        after = taken(record, event)
        return replace(after, state=replace(after.state, taken=record.state.taken))

    return changed


def lose_inbox(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def resend_new(record: Any, event: Any, now_ns: int) -> Any:
    return in_flight.send(record, StateCommitted(event.time_ns), now_ns)


def resend_nothing(record: Any, event: Any, now_ns: int) -> Any:
    return record, (), ()


def release_and_commit(record: Any, event: Any, now_ns: int) -> Any:
    after, effects, seen = delivery.commit(record, (Change(received=event),), now_ns)
    return after, (Send(record.client, Pubrel(event.packet)), *effects), seen


def any_number(record: Any, packets: Any) -> bool:
    return True


def skip_prefix(take_prefix: Any) -> Any:
    """What was pending counts as taken, and is not."""

    def changed(record: Any, writer: str) -> Any:
        return replace(take_prefix(record, writer), blocked_rows=record.blocked_rows)

    return changed


def release_by_writer(record: Any) -> Any:
    """All that is blocked, in the order of the writers' names."""
    blocked = record.blocked_rows
    takes = tuple(
        Take(writer, epoch, tuple(row.queued for row in rows))
        for writer in sorted(blocked)
        for epoch, rows in groupby(blocked[writer], key=lambda row: row.epoch)
    )
    return replace(record, blocked_rows=Map()), takes


def begin_without_the_dead(record: Any, event: Any, now_ns: int) -> Any:
    return begin_flows(record, replace(event, gone=()), now_ns)


begin_flows = resume_actions.begin_flows


def knows_nothing(record: Any, writer: str) -> Any:
    made = new_flow(record, writer)
    return replace(made, epoch=1, taken=0)


new_flow = resume_actions.new_flow


def over_later(queued: Any, now_ns: int) -> bool:
    return bool(0 < queued.until_ns < now_ns)


def pass_over_all(passed_over: Any) -> Any:
    """All that was to be sent in this commit."""

    def wrong(record: Any, event: Any, now_ns: int) -> Any:
        record, effects, seen = passed_over(record, event, now_ns)
        packets = record.state.packets
        for one in record.outgoing:
            packets = packets.delete(one.packet) if one.packet else packets
        return replace(record, outgoing=(), state=replace(record.state, packets=packets)), effects, seen

    return wrong


def keep_packets(passed_over: Any) -> Any:
    def wrong(record: Any, event: Any, now_ns: int) -> Any:
        after, effects, seen = passed_over(record, event, now_ns)
        return replace(after, state=replace(after.state, packets=record.state.packets)), effects, seen

    return wrong


def without_settled(receive: Any) -> Any:
    """What is done when it is received is not committed as received."""

    def changed(record: Any, changes: Any, now_ns: int) -> Any:
        after, effects, seen = receive(record, changes, now_ns)
        received = tuple(packet for packet in after.received if packet in after.state.packets)
        return replace(after, received=received), effects, seen

    return changed


def without_until(numbered: Any) -> Any:
    return lambda *given: tuple(replace(row, until_ns=0) for row in numbered(*given))


def for_nothing_older(bound: Any) -> Any:
    """A live row waits for nothing, whoever its publisher is."""
    return lambda row, since_ns: bound(row, None) if since_ns is None else 0


def find_newest(record: Any, places: Any) -> Any:
    queues = ((writer, record.blocked_rows[writer], place) for writer, place in places.items())
    heads = {writer: queue.row_at(place) for writer, queue, place in queues if place < len(queue)}
    free = (writer for writer, row in heads.items() if resume_record.is_complete(record, writer, row.bound_ns))
    return max(free, key=lambda writer: heads[writer].queued.stored_ns, default=None)


def passes_blocked_rows(record: Any, event: Any, cause: Any) -> bool:
    return event.writer not in record.blocked_rows and resume_record.has_nothing_missing(record, event, cause)


def settle_in_one_round(before: Any, done: Any, now_ns: int) -> Any:
    """A writer whose rows another one releases is not looked at again."""
    record, effects, steps = done
    if record.blocked_rows:
        record, effects, steps = resume_actions.pass_blocked(record, effects, steps, now_ns)
    for writer in keys_in_order(record.flows):
        flow = record.flows[writer]
        event: Event | None = None
        if flow.status is FINALIZING and resume_actions.is_committed(record):
            is_crowded = resume_actions.is_crowded_for(record, flow)
            event = resume_actions.cut_at(flow, writer_flow.next_live(flow)) if is_crowded else Settled()
        elif resume_actions.is_starved(record, flow) and resume_actions.has_room_for_page(record):
            event = Room(record.times.page)
        if event is not None:
            record, more, seen = resume_actions.step_flow(record, flow, event, now_ns)
            effects, steps = (*effects, *more), (*steps, *seen)
    if resume_actions.waits_with_room(record) and not resume_actions.waits_with_room(before):
        effects = (*effects, SetTimer("lull", now_ns + record.times.lull_ms * MS))
    return record, effects, steps


def without_writers_in(status: Any) -> Any:
    """Writers in this state count as complete."""

    def wrapped(is_complete: Any) -> Any:
        def changed(record: Any, writer: str, bound_ns: int) -> bool:
            left = (name for name, flow in record.flows.items() if flow.status is status)
            return bool(is_complete(replace(record, flows=without(record.flows, left)), writer, bound_ns))

        return changed

    return wrapped


def without(flows: Any, names: Any) -> Any:
    for name in names:
        flows = flows.delete(name)
    return flows


W, F, D, P, R = WRITER, WRITER_FLOW, DELIVERY, IN_FLIGHT, RESUME

BUGS = (
    Bug("cut-is-not-made", "what the database has from the marker on is taken, too", "PS-25", "the cut",
        replace_call(writer_flow, "rows_below", whatever_is_visible)),
    Bug("cut-with-the-marker", "the number of the marker counts as below it", "PS-25", "below the marker",
        replace_call(writer_flow, "rows_below", with_the_marker)),
    Bug("hole-is-stepped-over", "a row that is not visible yet is left out", "PS-25", "without a hole",
        replace_call(writer_flow, "select_contiguous", whatever_follows)),
    Bug("marker-is-enough", "the marker in the database is taken for everything before it", "PS-25", "every number",
        change_rows(F, "take_below", when=marker_was_seen)),
    Bug("live-kept-before-the-marker", "what comes before the marker counts as behind it", "PS-21", "what is dropped",
        on(F, Live, WAITING, do=keep_still)),
    Bug("stale-marker-believed", "a marker is believed though what is behind it came and was dropped", "PS-23",
        "the look at what was heard", change_rows(F, "start_sync", when=writer_flow.is_mine)),
    Bug("buffer-is-dropped", "what was kept behind the marker is not sent", "PS-26", "the buffer",
        change_rows(F, "take_buffer", do=drop_buffer)),
    Bug("buffer-outlives-its-marker", "a fresh marker begins with what was kept for another",
        "PS-28", "the empty buffer",
        on(F, LinkLost, SYNCING, do=keep_buffer)),
    Bug("gap-is-not-seen", "a live message that is ahead is taken for the next", "PS-28", "the look at the number",
        change_rows(F, "take_live", when=always)),
    Bug("taken-live-again", "a live message that was taken is taken again", "PS-29", "the look at the number",
        change_rows(F, "take_live", when=lambda record, event: event.number <= record.taken + 1)),
    Bug("buffer-overflows", "more is kept than the resume buffer has room for, and the rest is lost",
        "PS-24", "the bound",
        on(F, Live, FINALIZING, when=lambda record, event: False)),
    Bug("link-is-not-watched", "what a broken path has lost is never asked for", "PS-28", "a fresh marker",
        combine(on(F, LinkLost, DONE, to=STAY, do=keep_still),
             on(F, LinkLost, WAITING, to=STAY, do=keep_still))),
    Bug("fence-raises-nothing", "a writer that is read as fenced goes on under its epoch", "PS-30", "the raised epoch",
        wrap_call(writer_flow, "fence", raise_nothing)),
    Bug("fenced-rows-forgotten", "what a fenced writer has stored is not taken", "PS-32", "its rows",
        change_rows(F, "take_fenced", do=forget_rows)),
    Bug("fence-just-above", "a silent writer is fenced above the epoch that is known, not above its own", "PS-30",
        "whatever epoch it has", change_rows(F, "fence_silent", do=just_above)),
    Bug("death-during-a-fence", "a writer that dies while it is fenced is not fenced again",
        "PS-33", "the second fence",
        on(F, WriterDown, FENCING, do=keep_still)),
    Bug("fenced-and-heard", "what comes live while a writer is fenced is forgotten", "PS-33", "a fresh marker",
        change_rows(F, "take_fenced", when=lambda record, event: event.n == record.n and record.gone)),
    Bug("silence-is-borne", "a silent writer is waited for, for ever", "PS-30", "the fence",
        combine(on(F, MarkerTimeout, WAITING, to=STAY, do=keep_still),
             on(F, WriterDown, WAITING, to=STAY, do=keep_still))),
    Bug("database-read-once", "the database is not read again when the marker is not there yet",
        "PS-25", "the next poll",
        on(F, PollDue, SYNCING, do=keep_still)),
    Bug("marker-takes-a-number", "a marker takes a number", "PS-07", "no number",
        change_rows(W, "show_and_go_on", do=counts_the_marker)),
    Bug("marker-off-by-one", "the marker says one more than the next number", "PS-07", "k",
        change_rows(W, "show_and_go_on", do=show_one_too_many)),
    Bug("marker-not-shown", "a marker is stored, and not shown live", "PS-07", "the live marker",
        change_rows(W, "show_and_go_on", do=show_in_database_alone)),
    Bug("unclear-counts-as-stored", "a row whose fate is not known counts as stored", "PS-05", "the look",
        on(W, RowRead, READING, to=IDLE, do=early)),
    Bug("unclear-stored-twice", "a row whose fate is not known is stored again under the next number",
        "PS-05", "the look",
        on(W, RowUnclear, STORING, to=STAY, do=writer_actions.put_again)),
    Bug("fenced-row-dropped", "a row that was refused under the old epoch is not stored, and its publisher is answered",
        "PS-06", "stored anew", on(W, RowFenced, STORING, to=IDLE, do=same_epoch)),
    Bug("numbers-go-on", "the next epoch goes on with the numbers of the one before", "PS-06", "from 1 on",
        change_rows(W, "put_under_next_epoch", do=same_number_under_next_epoch)),
    Bug("range-asked-for-in-part", "of a range the first row is asked for, and all publishers are answered", "PS-400",
        "all of it", wrap_call(writer_actions, "put", put_first_alone)),
    Bug("range-stored-in-part", "the database stores the first row of a range, and says that it has stored it",
        "PS-401", "all or none", wrap_call(session_tables, "store_range", store_first_alone)),
    Bug("live-not-sent", "a stored row is not sent live", "PS-04", "the live message",
        wrap_call(writer_actions, "send_stored", lambda sent: lambda *given: answer_alone(*sent(*given)))),
    Bug("answered-before-stored", "the publisher is answered before the row is stored", "PS-04", "stored first",
        on(W, RowUnclear, STORING, to=IDLE, do=early)),
    Bug("sent-before-committed", "what is taken is sent at once, and committed then", "PS-44", "the commit",
        wrap_call(delivery, "commit", send_at_once)),
    Bug("marked-before-committed", "rows are marked before the state has them", "PS-44", "the commit",
        wrap_call(delivery, "commit", mark_at_once)),
    Bug("over-is-sent", "what is over is sent though the database has left it out", "PS-208", "the look at its time",
        combine(change_rows(D, "pass_over", when=never), change_rows(D, "pass_over_and_commit", when=never))),
    Bug("over-a-moment-later", "a message is over behind its last moment, for the machine alone", "PS-208",
        "the very moment", replace_call(delivery, "is_over", over_later)),
    Bug("over-by-what-is-next", "with what is over what is committed with it is left out", "PS-208", "each alone",
        wrap_call(delivery, "finish_delivered", pass_over_all)),
    Bug("over-keeps-its-packet", "what is over keeps its packet, and nobody will acknowledge it", "PS-208",
        "the free packet", wrap_call(delivery, "finish_delivered", keep_packets)),
    Bug("over-leaves-no-room", "what waits behind what is over waits for another to be acknowledged", "PS-208",
        "the room", change_rows(D, "pass_over_and_commit", when=lambda record, event: bool(
            delivery.has_over(record, event) and record.inbox))),
    Bug("over-where-it-is-kept", "what is over is passed over by the machine alone, and committed", "PS-208",
        "left out", replace_call(request, "is_over", lambda queued, now_ns: False)),
    Bug("in-flight-left-out", "what was in flight and is over is committed no more", "PS-209", "it goes on",
        replace_call(request, "begins", lambda one: True)),
    Bug("over-by-its-own-clock", "a message is over when its writer or owner thinks so", "PS-208",
        "the clock of the database",
        replace_call(delivery, "is_over", lambda queued, now_ns: queued.until_ns > 0)),
    Bug("sent-and-then-over", "what was sent and is over does not come again", "PS-209", "it goes on",
        on(P, Resend, SENT, to=SETTLED, when=lambda record, event: is_over(record.queued, event.time_ns))),
    Bug("expiry-not-kept", "a writer forgets when a message is over", "PS-211", "its moment",
        wrap_call(writer_actions, "number_rows", without_until)),
    Bug("first-copy-alone", "of a row the copy of its first filter is taken alone", "PS-550", "the other copies",
        replace_call(delivery, "unfold_row", lambda row: unfold_row(row)[:1])),
    Bug("positions-not-kept", "the state does not hold up to where it has taken", "PS-42", "the last number",
        wrap_call(delivery, "take_rows", positions_not_kept)),
    Bug("taken-meanwhile-lost", "what is taken while a commit is open is forgotten", "PS-43", "the inbox",
        change_rows(D, "queue_take", do=lose_inbox)),
    Bug("in-flight-not-sent-again", "what is in flight is not sent to a client that connects anew",
        "PS-41", "the resend",
        change_rows(D, "resend", do=Delegate(resend_nothing))),
    Bug("redelivery-not-marked", "what is sent again is not marked as such", "PS-55", "dup",
        change_rows(P, "send_again", do=resend_new)),
    Bug("packet-id-in-use", "a packet id is given to a message while another has it", "PS-49", "a free id",
        replace_call(delivery, "free_packet", lambda packets, places: 1)),
    Bug("receive-maximum-passed", "more goes out than the client receives", "PS-49", "the receive maximum",
        replace_call(delivery, "has_room", any_number)),
    Bug("keeps-and-waits", "room for less than a page is never looked at while the client is still", "PS-286",
        "the lull", replace_call(resume_actions, "waits_with_room", lambda record: False)),
    Bug("released-before-committed", "a packet is released before that is committed", "PS-52", "the commit",
        change_rows(D, "commit_received", do=Delegate(release_and_commit))),
    Bug("acknowledged-too-early", "a message of QoS 2 is done when it is received", "PS-52", "the release",
        combine(on(P, Pubrec, SENT, to=SETTLED), wrap_call(delivery, "receive", without_settled))),
    Bug("prefix-not-taken", "what was pending counts as taken, and is not", "PS-64", "the prefix",
        wrap_call(resume_actions, "take_prefix", skip_prefix)),
    Bug("state-not-read", "a resume does not look up to where the state has taken", "PS-64", "the last number",
        replace_call(resume_actions, "new_flow", knows_nothing)),
    Bug("dead-writers-left-out", "writers that are dead when the session subscribes are not asked for",
        "PS-64", "the fence",
        combine(change_rows(R, "begin_flows", do=Delegate(begin_without_the_dead)),
             change_rows(R, "tell_resumed", when=lambda record, event: not event.writers))),
    Bug("normal-too-early", "a resume ends though writers are still synchronised", "PS-66", "all writers",
        replace_call(resume_actions, "is_synchronised", lambda record: True)),
    Bug("taken-as-it-comes", "rows go into the session state as they come, whatever is missing of other writers",
        "PS-480", "the merge", replace_call(resume_actions, "may_pass", lambda record, event, cause: True)),
    Bug("move-is-not-seen", "a live row does not wait for what its publisher has stored elsewhere", "PS-481",
        "the bound of a live row", wrap_call(resume_record, "_bound", for_nothing_older)),
    Bug("open-numbers-read-past", "a read says that rows are there whose transaction has a number and is not committed",
        "PS-514", "the first open number", replace_call(session_tables, "first_open", lambda local: local.commits + 1)),
    Bug("merged-by-writer", "rows of several writers go into the session state one writer after the other", "PS-480",
        "the order of commits", replace_call(resume_actions, "release_rows", release_by_writer)),
    Bug("merged-newest-first", "of blocked rows that are complete the newest goes first", "PS-480", "the oldest",
        replace_call(resume_record, "find_free", find_newest)),
    Bug("blocked-rows-are-passed", "a row whose own bound is met passes rows that are blocked", "PS-520",
        "the blocked rows", replace_call(resume_actions, "may_pass", passes_blocked_rows)),
    Bug("fenced-writer-not-waited-for", "what a writer has stored that is being fenced blocks nothing", "PS-480",
        "every writer", wrap_call(resume_record, "is_complete", without_writers_in(FENCING))),
    Bug("draining-writer-not-waited-for", "what a fenced writer has stored that there is no room for blocks nothing",
        "PS-480", "every writer", wrap_call(resume_record, "is_complete", without_writers_in(DRAINING))),
    Bug("released-and-waiting", "a writer does not read on when rows of another release its own and leave room",
        "PS-196", "the second look", replace_call(resume_actions, "settle", settle_in_one_round)),
    *takeover_bugs.COLLECTOR_BUGS,
    *publication_bugs.LIFE_BUGS,
    *group_bugs.BUGS,
    *takeover_bugs.NODE_BUGS,
    *takeover_bugs.BUGS,
    *CLOCK_BUGS,
    *publication_bugs.BUGS,
    *client_inbox_bugs.BUGS,
)  # fmt: skip
"""Each with a sentence of its own."""
