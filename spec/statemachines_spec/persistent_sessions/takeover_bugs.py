"""Bugs of a takeover: mistakes that can be planted in either side of it.

Bugs of the collector: mistakes that can be planted in it.

Bugs of a whole node: mistakes that can be planted in what the process of a node decides.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.drivers.persistent_sessions import machine_requests
from statemachines.kernel import STAY, Ask, Feed, Map, Send
from statemachines.kernel.row import Delegate
from statemachines.persistent_sessions import (
    collector,
    resume,
    resume_actions,
    session_host_peers,
    takeover,
    takeover_record,
    writer_flow,
)
from statemachines.persistent_sessions.collector import (
    COLLECTOR,
    DELETING,
    FORGETTING,
    ClientForgotten,
    Only,
    PageDeleted,
    ReadRows,
    RowDeletion,
    RowsRead,
    Tag,
)
from statemachines.persistent_sessions.in_flight import Resend
from statemachines.persistent_sessions.message import Publish
from statemachines.persistent_sessions.request import DATABASE, ReadPending, RowsConfirmed
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.resume_record import READING, TAKING, YIELDING, OrphanTimeout
from statemachines.persistent_sessions.session_host_peers import with_claims, with_writer
from statemachines.persistent_sessions.session_host_process import SESSION_HOST_MACHINE
from statemachines.persistent_sessions.takeover import TAKEOVER
from statemachines.persistent_sessions.takeover_record import (
    ENDING,
    NO_CLAIMS,
    OVER,
    BeginTakeover,
    Claims,
    FinishTakeover,
    SessionClaims,
    TakeoverRefused,
)
from statemachines.persistent_sessions.writer_flow import WRITER_FLOW, Handed
from statemachines_spec.bug import Bug, change_rows, combine, replace_call, wrap_call
from statemachines_spec.persistent_sessions import collected_database
from statemachines_spec.persistent_sessions.clients import on


def stay(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def believe(record: Any, event: Any, now_ns: int) -> Any:
    """What is handed over is taken as it is."""
    return takeover.hand_on(record, RowsConfirmed(event.found), now_ns)


start_takeover, finish = resume.start_takeover, resume.finish
hand_over = resume_actions.hand_over
step_delivery, step_takeover = resume_actions.step_delivery, resume.step_takeover


def send_at_once(record: Any, event: Any, now_ns: int) -> Any:
    """What is in flight goes out while the owner of before is still asked."""
    record, effects, seen = start_takeover(record, event, now_ns)
    record, more, steps = step_delivery(record, Resend(), now_ns)
    return record, (*effects, *more), (*seen, *steps)


def fall_back_as_loaded(record: Any, event: Any, now_ns: int) -> Any:
    """It goes on with what was loaded before it waited."""
    record, told, seen = step_takeover(record, event, now_ns)
    record, effects, steps = step_delivery(record, Resend(), now_ns)
    return record, (*told, *effects, Ask(DATABASE, ReadPending(record.session))), (*seen, *steps)


def send_nothing_again(record: Any, now_ns: int) -> Any:
    return step_takeover(record, FinishTakeover(), now_ns)


def send_again_alone(record: Any, now_ns: int) -> Any:
    return step_delivery(record, Resend(), now_ns)


def take_at_begin(record: Any, event: Any, now_ns: int) -> Any:
    """What is in flight goes out when the owner of before has begun, and not when the subscription is answered."""
    record, effects, seen = subscribe_over(record, event, now_ns)
    record, more, steps = step_delivery(record, Resend(), now_ns)
    return record, (*effects, *more), (*seen, *steps)


subscribe_over = resume.subscribe_over


def take_handed(rows: Any) -> Any:
    """Another choice of what is handed over: `rows(record, event)` of the epoch."""

    def changed(record: Any, event: Any, now_ns: int) -> Any:
        found = tuple(rows(record, event))
        last = found[-1].number if found else record.taken
        return replace(record, taken=last), writer_flow.take(record, found, record.epoch)

    return changed


def of_the_epoch(record: Any, event: Any) -> Any:
    return (row for one in event.found if one.epoch == record.epoch for row in one.rows)


def beyond_the_marker(record: Any, event: Any) -> Any:
    return writer_flow.select_contiguous(of_the_epoch(record, event), record.taken)


def over_holes(record: Any, event: Any) -> Any:
    below = (row for row in of_the_epoch(record, event) if not record.k or row.number < record.k)
    return (row for row in below if row.number > record.taken)


def of_any_epoch(record: Any, event: Any) -> Any:
    rows = (row for one in event.found for row in one.rows if not record.k or row.number < record.k)
    return writer_flow.select_contiguous(rows, record.taken)


def take_and_forget(record: Any, event: Any, now_ns: int) -> Any:
    """It is sent, and not counted."""
    after, effects = shipped_take_handed(record, event, now_ns)
    return replace(after, taken=record.taken), effects


def count_and_drop(record: Any, event: Any, now_ns: int) -> Any:
    return shipped_take_handed(record, event, now_ns)[0], ()


shipped_take_handed = writer_flow.take_handed


def drain_to_client(record: Any, event: Any, now_ns: int) -> Any:
    """What it kept goes to the client, too."""
    sent = (Publish(0, row.message, row.filter, 0, False) for one in record.pending for row in one.rows)
    after, effects = hand_over(record, event, now_ns)
    return after, (*(Send(record.client, one) for one in sent), *effects)


def hand_to_any(record: Any, event: Any, now_ns: int) -> Any:
    """Every flow gets all of it."""
    done: Any = (record, (), ())
    for writer in sorted(record.flows):
        flow = done[0].flows[writer]
        after, effects, steps = resume_actions.step_flow(done[0], flow, Handed(event.found), now_ns)
        done = after, (*done[1], *effects), (*done[2], *steps)
    return done


R, T, F = RESUME, TAKEOVER, WRITER_FLOW

BUGS = (
    Bug("handed-over-and-believed", "what is handed over is taken without a look into the database", "PS-175",
        "the question", change_rows(T, "confirm", to=OVER, do=believe)),
    Bug("sent-before-begun", "the new owner sends before the one before has yielded", "PS-170", "the wait",
        change_rows(R, "start_takeover", do=Delegate(send_at_once))),
    Bug("sent-when-begun", "what is in flight is sent again before the subscription is answered", "PS-174",
        "the token", combine(change_rows(R, "subscribe_over", do=Delegate(take_at_begin)),
                          replace_call(resume, "finish", send_nothing_again))),
    Bug("old-goes-on", "the owner of before answers, and goes on", "PS-180", "the yielding",
        change_rows(R, "yield_session", to=STAY, do=resume_actions.answer_begun)),
    Bug("drained-to-the-client", "the owner of before sends what it kept when it ends", "PS-184", "the silence",
        change_rows(R, "hand_over", do=drain_to_client)),
    Bug("orphan-stays", "an owner that yields stays until somebody comes", "PS-185", "the timer",
        on(R, OrphanTimeout, YIELDING, to=STAY, do=stay)),
    Bug("refusal-waited-out", "an owner that refuses to begin is waited for", "PS-173", "the refusal",
        on(R, TakeoverRefused, TAKING, to=STAY, do=stay)),
    Bug("refusal-at-end-waited-out", "an owner that is gone when it is to end is waited for", "PS-178", "the refusal",
        on(T, TakeoverRefused, ENDING, to=STAY, do=stay)),
    Bug("fallback-as-loaded", "a resume that falls back goes on with what it had loaded before it waited", "PS-173",
        "the second load", change_rows(R, "fall_back", to=READING, do=Delegate(fall_back_as_loaded))),
    Bug("end-not-asked", "the owner of before is not asked to end", "PS-174", "the end",
        replace_call(resume, "finish", send_again_alone)),
    Bug("nothing-sent-again", "what is in flight is not sent again after a takeover", "PS-174", "the resend",
        replace_call(resume, "finish", send_nothing_again)),
    Bug("second-claim-ignored", "an owner that yields does not answer who comes after the first", "PS-183",
        "the answer", on(R, BeginTakeover, YIELDING, to=STAY, do=stay)),
    Bug("handed-beyond-the-marker", "what is handed over is taken from the marker on, too", "PS-177", "the marker",
        change_rows(F, "take_handed", do=take_handed(beyond_the_marker))),
    Bug("handed-over-holes", "a hole in what is handed over is stepped over", "PS-177", "the hole",
        change_rows(F, "take_handed", do=take_handed(over_holes))),
    Bug("handed-of-any-epoch", "what is handed over of another epoch is taken for this one", "PS-177", "the epoch",
        change_rows(F, "take_handed", do=take_handed(of_any_epoch))),
    Bug("handed-and-not-counted", "what is handed over is taken, and up to where is not kept", "PS-177", "the number",
        change_rows(F, "take_handed", do=take_and_forget)),
    Bug("handed-to-any-writer", "what is handed over of one writer goes to the flow of another", "PS-176",
        "the writer", replace_call(resume, "hand_to_flows", hand_to_any)),
    Bug("handed-and-dropped", "what is handed over counts as taken, and is not", "PS-177", "the rows",
        change_rows(F, "take_handed", do=count_and_drop)),
)  # fmt: skip
"""Each with a sentence of its own."""


def replace_tagged(tag: Tag, **facts: Any) -> Any:
    """Rows with this tag are judged as if this were so of them."""

    def wrap(row_garbage: Any) -> Any:
        return lambda row, graces: row_garbage(replace(row, **facts) if row.key.tag is tag else row, graces)

    return wrap


def message_seen_as(**facts: Any) -> Any:
    """Messages are judged as if this were so of them."""
    return lambda message_garbage: lambda one, graces: message_garbage(replace(one, **facts), graces)


def always_deleted(garbage: Any) -> Any:
    """What was read is not asked again when it is deleted."""

    def changed(one: Any, graces: Any) -> Any:
        found = garbage(one, graces)
        return None if found is None else replace(found, only=Only.ALWAYS)

    return changed


def by_its_own_clock(message_garbage: Any) -> Any:
    """The clock of the collector is ahead of that of the database, which is not asked."""

    def changed(one: Any, graces: Any) -> Any:
        found = message_garbage(replace(one, over=one.referenced), graces)
        return found if found is None or found.only is not Only.OVER else replace(found, only=Only.UNHELD)

    return changed


def over_whoever_has_it(message_garbage: Any) -> Any:
    """What is over is deleted though a state holds it."""
    blind = always_deleted(message_seen_as(held=False)(message_garbage))
    return lambda one, graces: (blind if one.over else message_garbage)(one, graces)


def nameless(queued: Any, now_ns: int) -> Any:
    return replace(queued, message="")


def at_once(tag: Tag, **facts: Any) -> Any:
    """Rows with this tag are judged as if this were so of them, and what was read is not asked again."""

    def wrap(row_garbage: Any) -> Any:
        sure = always_deleted(replace_tagged(tag, **facts)(row_garbage))
        return lambda row, graces: (sure if row.key.tag is tag else row_garbage)(row, graces)

    return wrap


def whole_page(garbage_rows: Any) -> Any:
    """All rows between the first and the last that go are deleted with them."""

    def changed(record: Any, event: RowsRead) -> tuple[RowDeletion, ...]:
        found: tuple[RowDeletion, ...] = garbage_rows(record, event)
        keys = [row.key for row in event.rows]
        within = keys[keys.index(found[0].row) : keys.index(found[-1].row)] if found else []
        return tuple(RowDeletion(key, Only.ALWAYS) for key in within) + found[-1:]

    return changed


def read_waiting(record: Any) -> Any:
    """Rows that wait are read as well."""
    return record, (Ask(DATABASE, ReadRows(record.after, record.graces.page)),)


def go_on_behind(record: Any, event: Any, now_ns: int) -> Any:
    """The next round begins where this one has ended."""
    return collector.scan_messages(record)


def end_and_stay(record: Any, event: Any, now_ns: int) -> Any:
    return record, end_round(record, event, now_ns)[1]


def read_from_behind(record: Any, event: Any, now_ns: int) -> Any:
    """The next round begins with the client with which this one has ended."""
    return collector.read(record)


def stand(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


end_round = collector.end_round


A, C = collector, COLLECTOR
OLD = 1_000_000

COLLECTOR_BUGS = (
    Bug(
        "undelivered-deleted",
        "a row that nobody has taken is deleted",
        "PS-81",
        "the look at the mark",
        wrap_call(A, "row_garbage", replace_tagged(Tag.UNDELIVERED, paired=True)),
    ),
    Bug(
        "taken-row-kept",
        "a row that is taken and was never marked stays",
        "PS-81",
        "the look at the state",
        wrap_call(A, "row_garbage", replace_tagged(Tag.UNDELIVERED, taken=False)),
    ),
    Bug(
        "marks-stay",
        "a lone mark is never deleted",
        "PS-81",
        "the grace of marks",
        wrap_call(A, "row_garbage", replace_tagged(Tag.DELIVERED, age_ms=0)),
    ),
    Bug(
        "mark-goes-first",
        "of a pair the mark may go first",
        "PS-81",
        "the order",
        wrap_call(A, "row_garbage", at_once(Tag.DELIVERED)),
    ),
    Bug(
        "young-marker-deleted",
        "a marker is deleted while a resume waits for it",
        "PS-81",
        "the grace of markers",
        wrap_call(A, "row_garbage", replace_tagged(Tag.MARKER, age_ms=OLD)),
    ),
    Bug(
        "markers-stay",
        "markers are never deleted",
        "PS-81",
        "the grace of markers",
        wrap_call(A, "row_garbage", replace_tagged(Tag.MARKER, age_ms=0)),
    ),
    Bug(
        "abandoned-too-early",
        "what says that a session is abandoned goes before its rows",
        "PS-81",
        "the last row",
        wrap_call(A, "row_garbage", at_once(Tag.ABANDONED, alone=True)),
    ),
    Bug(
        "abandoned-without-grace",
        "what says that a session is abandoned goes while a writer still stores",
        "PS-81",
        "the grace",
        wrap_call(A, "row_garbage", replace_tagged(Tag.ABANDONED, age_ms=OLD)),
    ),
    Bug(
        "abandoned-stays",
        "what says that a session is abandoned is never deleted",
        "PS-81",
        "the last row",
        wrap_call(A, "row_garbage", replace_tagged(Tag.ABANDONED, alone=False)),
    ),
    Bug(
        "abandoned-rows-stay",
        "rows of an abandoned session stay",
        "PS-81",
        "the look at the session",
        wrap_call(A, "row_garbage", replace_tagged(Tag.UNDELIVERED, abandoned=False)),
    ),
    Bug(
        "held-message-deleted",
        "a message that is in flight is deleted",
        "PS-84",
        "the look at the states",
        wrap_call(A, "message_garbage", lambda garbage: always_deleted(message_seen_as(held=False)(garbage))),
    ),
    Bug(
        "referenced-since",
        "a message is deleted though a row has come to refer to it",
        "PS-84",
        "the transaction",
        wrap_call(A, "message_garbage", always_deleted),
    ),
    Bug(
        "messages-stay",
        "messages to which nothing refers stay",
        "PS-84",
        "the grace of messages",
        wrap_call(A, "message_garbage", message_seen_as(referenced=True)),
    ),
    Bug(
        "over-stays",
        "a message that is over stays until its sessions have come",
        "PS-240",
        "the look at the expiry",
        wrap_call(A, "message_garbage", message_seen_as(over=False)),
    ),
    Bug(
        "over-by-the-collectors-clock",
        "a message is deleted when the collector thinks that it is over",
        "PS-240",
        "the clock of the database",
        wrap_call(A, "message_garbage", by_its_own_clock),
    ),
    Bug(
        "over-in-flight-deleted",
        "a message that is over is deleted though it is in flight",
        "PS-240",
        "the look at the states",
        wrap_call(A, "message_garbage", over_whoever_has_it),
    ),
    Bug(
        "over-counts-as-lost",
        "a row whose message is deleted, being over, counts as lost",
        "PS-241",
        "the name of its message",
        combine(
            replace_call(machine_requests, "without_message", nameless),
            replace_call(collected_database, "without_message", nameless),
        ),
    ),
    Bug(
        "round-begins-behind",
        "the next round does not begin with the first row",
        "PS-82",
        "the first row",
        change_rows(C, "scan", do=go_on_behind),
    ),
    Bug(
        "messages-from-behind",
        "the next round does not begin with the first message",
        "PS-82",
        "the first message",
        change_rows(C, "end_round", do=end_and_stay),
    ),
    Bug(
        "collector-stands",
        "a collector that has deleted something waits for nothing",
        "PS-83",
        "the next deletion",
        on(C, PageDeleted, DELETING, to=STAY, do=stand),
    ),
    Bug(
        "page-deleted-whole",
        "rows that wait are read, and deleted where they stand between two that go",
        "PS-83",
        "the rows of the page",
        combine(wrap_call(A, "garbage_rows", whole_page), replace_call(A, "read", read_waiting)),
    ),
    Bug(
        "expired-stays",
        "a client whose session has expired is never forgotten",
        "PS-120",
        "the look at the expiry",
        replace_call(A, "clients_over", lambda record, event: ()),
    ),
    Bug(
        "forgetting-stands",
        "a collector that has forgotten a client waits for nothing",
        "PS-121",
        "the next client",
        on(C, ClientForgotten, FORGETTING, to=STAY, do=stand),
    ),
    Bug(
        "clients-from-behind",
        "the next round does not begin with the first client",
        "PS-82",
        "the first client",
        change_rows(C, "read_first", do=read_from_behind),
    ),
)
"""Each with a sentence of its own."""


H = SESSION_HOST_MACHINE


def open_alone(record: Any, event: Any, now_ns: int) -> Any:
    """As if nobody had the session."""
    return session_host_peers.begin_resume(record, replace(event, live=""), now_ns)


def mark_alone(record: Any, message: Any) -> Any:
    """The writer does not learn who wants the marker."""
    record, party, began = with_writer(record, message.session)
    return record, (*began, Feed(party, message))


def keep_still(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def discard_at_once(record: Any, event: Any, now_ns: int) -> Any:
    return record, session_host_peers.discard(event.to)


def meet_alone(record: Any, event: Any, now_ns: int) -> Any:
    return session_host_peers.note_rows(record, replace(event, rows=Map()), now_ns)


def judge_by_any(record: Any, event: Any, now_ns: int) -> Any:
    """The answer to any question about the session judges its claims."""
    return session_host_peers.judge(record, replace(event, look=record.claims.look_of(event.session)), now_ns)


def wait_for_open(record: Any, held: Any, session: str) -> Any:
    """Claims that come while a look is open are judged by it."""
    look = held.look_of(session)
    waiting = tuple(replace(one, look=look) for one in held.of.get(session, NO_CLAIMS).waiting)
    held = Claims(held.of.set(session, SessionClaims(look, waiting))) if look else held
    return with_claims(record, held, session)


def tell_of_the_dead(record: Any, event: Any, now_ns: int) -> Any:
    return session_host_peers.tell_follower(record, event, now_ns) if event.is_dead else (record, ())


NODE_BUGS = (
    Bug("taken-over-from-nobody", "a session that is live at another owner is resumed as if it were live nowhere",
        "PS-140", "the owner of before", change_rows(H, "begin_resume", do=open_alone)),
    Bug("marker-without-owner", "a writer that shows a marker does not learn where the session is live", "PS-143",
        "who wants it", replace_call(session_host_peers, "mark", mark_alone)),
    Bug("claims-believed", "what another node claims of a session counts at once", "PS-164", "the database",
        change_rows(H, "pass_on", when=lambda record, event: True)),
    Bug("claims-dropped", "what another node claims of a session is dropped when the database is asked", "PS-164",
        "what is held", change_rows(H, "hold_takeover", do=keep_still)),
    Bug("claims-judged-by-any", "the answer that a writer waits for drops what was claimed before it came", "PS-630",
        "the number of the look", change_rows(H, "judge", do=judge_by_any)),
    Bug("claims-judged-too-early", "a claim is judged by a look that was asked for before it came", "PS-630",
        "the next look", replace_call(session_host_peers, "with_claims", wait_for_open)),
    Bug("claims-out-of-order", "a claim that comes late replaces a later one of its node", "PS-680", "the token",
        replace_call(takeover_record, "is_older", lambda said, held: False)),
    Bug("gone-owner-is-silent", "a node does not answer for an owner that it has not", "PS-160", "the refusal",
        change_rows(H, "refuse_takeover", do=keep_still)),
    Bug("dead-writer-not-told", "owners are not told that a node is dead", "PS-147", "who follows it",
        change_rows(H, "look_at_followers", do=keep_still)),
    Bug("writer-not-met", "an owner does not learn of a writer that the database has rows of", "PS-147",
        "the look into the database", change_rows(H, "meet", do=keep_still)),
    Bug("earlier-connection-waits", "a client that connects again leaves its earlier connection waiting for the lock",
        "PS-203", "the earlier one", change_rows(H, "overtake", do=session_host_peers.connect)),
    Bug("left-without-commit", "what a client has acknowledged is not committed when it leaves or is lost", "PS-146",
        "the commit", replace_call(session_host_peers, "commit_first", lambda record, owner: ())),
    Bug("acknowledged-and-kept", "what a client that stays has acknowledged is never committed", "PS-146",
        "the commit", change_rows(H, "commit_all", do=keep_still)),
    Bug("replaced-here-stays", "an owner is not told that its client has a fresh session at the same node", "PS-615",
        "the owner before", change_rows(H, "begin_in_place", do=session_host_peers.begin_resume)),
    Bug("replaced-there-stays", "an owner at another node is not told that its client has a fresh session", "PS-616",
        "the owner before", change_rows(H, "begin_and_tell", do=session_host_peers.begin_resume)),
    Bug("replaced-believed", "an owner ends when any node says that it is replaced", "PS-164", "the database",
        change_rows(H, "hold_replaced", do=discard_at_once)),
    Bug("undelivered-is-silent", "an owner waits for a node that cannot be reached", "PS-617", "the refusal",
        change_rows(H, "refuse_undelivered", do=keep_still)),
    Bug("superseded-look-unheard", "an owner goes on though the database shows that it is superseded", "PS-618",
        "the look into the database", change_rows(H, "end_superseded", do=keep_still)),
    Bug("lost-row-stays", "a row that two looks have found is waited for, for ever", "PS-153", "the link that is lost",
        change_rows(H, "note_rows", do=meet_alone)),
    Bug("lost-link-not-told", "owners are not told that the path of a writer has broken", "PS-147", "who follows it",
        change_rows(H, "tell_follower", do=tell_of_the_dead)),
)  # fmt: skip
"""Each with a sentence of its own."""
