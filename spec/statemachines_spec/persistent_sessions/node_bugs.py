"""Bugs of a whole node: mistakes that can be planted in what the process of a node decides."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Feed, Map
from statemachines.persistent_sessions import claims, session_host_owners, session_host_peers
from statemachines.persistent_sessions.claims import NO_CLAIMS, Claims, SessionClaims
from statemachines.persistent_sessions.session_host_peers import with_claims
from statemachines.persistent_sessions.session_host_process import SESSION_HOST_MACHINE
from statemachines.persistent_sessions.session_host_writers import with_writer
from statemachines_spec.bug import Bug, change_rows, replace_call

H = SESSION_HOST_MACHINE


def open_alone(record: Any, event: Any, now_ns: int) -> Any:
    """As if nobody had the session."""
    return session_host_owners.begin_resume(record, replace(event, live=""), now_ns)


def mark_alone(record: Any, message: Any) -> Any:
    """The writer does not learn who wants the marker."""
    record, party, began = with_writer(record, message.session)
    return record, (*began, Feed(party, message))


def keep_still(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def discard_at_once(record: Any, event: Any, now_ns: int) -> Any:
    return record, session_host_owners.discard(event.to)


def meet_alone(record: Any, event: Any, now_ns: int) -> Any:
    return session_host_owners.note_rows(record, replace(event, rows=Map()), now_ns)


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


BUGS = (
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
        replace_call(claims, "is_older", lambda said, held: False)),
    Bug("gone-owner-is-silent", "a node does not answer for an owner that it has not", "PS-160", "the refusal",
        change_rows(H, "refuse_takeover", do=keep_still)),
    Bug("dead-writer-not-told", "owners are not told that a node is dead", "PS-147", "who follows it",
        change_rows(H, "look_at_followers", do=keep_still)),
    Bug("writer-not-met", "an owner does not learn of a writer that the database has rows of", "PS-147",
        "the look into the database", change_rows(H, "meet", do=keep_still)),
    Bug("earlier-connection-waits", "a client that connects again leaves its earlier connection waiting for the lock",
        "PS-203", "the earlier one", change_rows(H, "overtake", do=session_host_owners.connect)),
    Bug("left-without-commit", "what a client has acknowledged is not committed when it leaves or is lost", "PS-146",
        "the commit", replace_call(session_host_owners, "commit_first", lambda record, owner: ())),
    Bug("acknowledged-and-kept", "what a client that stays has acknowledged is never committed", "PS-146",
        "the commit", change_rows(H, "commit_all", do=keep_still)),
    Bug("replaced-here-stays", "an owner is not told that its client has a fresh session at the same node", "PS-615",
        "the owner before", change_rows(H, "begin_in_place", do=session_host_owners.begin_resume)),
    Bug("replaced-there-stays", "an owner at another node is not told that its client has a fresh session", "PS-616",
        "the owner before", change_rows(H, "begin_and_tell", do=session_host_owners.begin_resume)),
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
