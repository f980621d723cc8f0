"""Allowed: mutants of persistent sessions that change nothing a clause speaks of."""

from __future__ import annotations

from typing import Final

from statemachines_spec.protocol import AllowedMutants

ALLOWED: Final = (
    AllowedMutants(
        ("session_host/*/to-up",),
        "PS-140",
        "the process has one state, and entering it sets no timer",
    ),
    AllowedMutants(
        ("session_host/19/after-20",),
        "PS-161",
        "no event meets both guards: an owner whose connection is over ends as taken over or orphaned, and neither "
        "ends a session life",
    ),
    AllowedMutants(
        ("session_host/16/after-17",),
        "PS-616",
        "no event meets both guards: the connection that is replaced is at this node, or at another one",
    ),
    AllowedMutants(
        ("session_host/34/after-35", "session_host/35/after-36", "session_host/38/after-39",
         "session_host/40/after-41", "session_host/41/after-42"),
        "PS-144",
        "no message meets both guards: each is about other kinds of messages, or of senders",
    ),
    AllowedMutants(
        ("session_host/36/deleted", "session_host/36/after-37", "session_host/37/deleted", "session_host/37/after-38",
         "session_host/44/deleted"),
        "PS-164",
        "a request for a marker that counts at once counts as well when the database has named its owner: an owner "
        "that asks is subscribed by then",
    ),
    AllowedMutants(
        ("session_host/47/after-48",),
        "PS-160",
        "what is passed on for another client is refused by the resume, which looks at its client too",
    ),
    AllowedMutants(
        ("group_member/31/deleted",),
        "PS-650",
        "the row says that nothing is done at this look, and an event that no row takes does nothing",
    ),
    AllowedMutants(
        ("session_life/2/to-locking",),
        "PS-110",
        "the deadline that entering anew sets is set for the same time by the row, and the timer of the lock has fired",
    ),
    AllowedMutants(
        ("writer/1/after-2", "writer/8/after-9", "writer/12/after-13", "writer/16/after-17", "writer/24/after-25"),
        "PS-03",
        "no event meets both guards: the next in turn is a message, or the marker",
    ),
    AllowedMutants(
        ("writer/11/to-storing",),
        "PS-475",
        "the writer stays in its state either way, and has no timer",
    ),
    AllowedMutants(
        ("writer/27/to-marking",),
        "PS-05",
        "the writer stays in its state either way, and has no timer",
    ),
    AllowedMutants(
        ("collector/3/to-finding", "collector/5/to-forgetting", "collector/8/to-reading", "collector/12/to-scanning"),
        "PS-82",
        "the collector stays in its state either way, and no timer belongs to it",
    ),
    AllowedMutants(
        ("writer_flow/2/after-3", "writer_flow/5/after-6", "writer_flow/5/after-7", "writer_flow/5/after-9"),
        "PS-31",
        "no event meets both guards: it is of a newer epoch, or of the one that is followed",
    ),
    AllowedMutants(
        ("writer_flow/9/after-10",),
        "PS-28",
        "no event meets both guards: a live number is the next one, or lies ahead",
    ),
    AllowedMutants(
        ("writer_flow/9/to-done",),
        "PS-27",
        "the flow stays in its state either way, and no timer belongs to it",
    ),
    AllowedMutants(
        ("writer_flow/4/to-waiting", "writer_flow/10/timer-dropped", "writer_flow/35/timer-dropped"),
        "PS-28",
        "the timers that entering sets, and those that the row sets, are set for the same times",
    ),
    AllowedMutants(
        ("writer_flow/21/unguarded",),
        "PS-199",
        "the session never says that there is no room for what was taken: the guard makes that a mistake of the host",
    ),
    AllowedMutants(
        ("writer_flow/32/unguarded", "writer_flow/33/unguarded"),
        "PS-33",
        "what is heard is compared with the epoch that a fence raises to, and those before it all lie below",
    ),
    AllowedMutants(
        ("session_resume/45/to-yielding",),
        "PS-183",
        "the timer that entering anew sets is set for the same time by the row",
    ),
    AllowedMutants(
        ("session_resume/45/after-46",),
        "PS-183",
        "no event meets both guards: a claim is above the last one, or is that",
    ),
    AllowedMutants(
        ("delivery/1/to-ready",),
        "PS-41",
        "the session state stays as it is either way, and has no timer",
    ),
    AllowedMutants(
        ("delivery/3/to-committing",),
        "PS-43",
        "the session state stays as it is either way, and has no timer",
    ),
    AllowedMutants(
        ("delivery/10/to-committing", "delivery/11/to-committing"),
        "PS-45",
        "the session state stays as it is either way, and has no timer",
    ),
    AllowedMutants(
        ("in_flight_message/5/to-released",),
        "PS-54",
        "the packet stays in its state either way, and has no timer",
    ),
    AllowedMutants(
        ("delivery/4/deleted",),
        "PS-480",
        "the row says that the session state does nothing, and an event that no row takes does nothing",
    ),
    AllowedMutants(
        ("delivery/6/after-7",),
        "PS-208",
        "no event meets both guards: what is over leaves room, so there would be more to commit behind it, too",
    ),
)  # fmt: skip
"""Each with the clause that allows it."""
