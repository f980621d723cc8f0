"""Allowed: mutants of persistent sessions that change nothing a clause speaks of."""

from __future__ import annotations

from typing import Final

from statemachines_spec.protocol import Allowed

ALLOWED: Final = (
    Allowed(
        ("session_host/*/to-up",),
        "PS-140",
        "the process has one state, and entering it sets no timer",
    ),
    Allowed(
        ("session_host/19/after-20",),
        "PS-161",
        "no event meets both guards: an owner whose connection is over ends as taken over or orphaned, and neither "
        "ends a session life",
    ),
    Allowed(
        ("session_host/16/after-17",),
        "PS-616",
        "no event meets both guards: the connection that is replaced is at this node, or at another one",
    ),
    Allowed(
        ("session_host/34/after-35", "session_host/35/after-36", "session_host/38/after-39",
         "session_host/40/after-41", "session_host/41/after-42"),
        "PS-144",
        "no message meets both guards: each is about other kinds of messages, or of senders",
    ),
    Allowed(
        ("session_host/36/deleted", "session_host/36/after-37", "session_host/37/deleted", "session_host/37/after-38",
         "session_host/44/deleted"),
        "PS-164",
        "a request for a marker that counts at once counts as well when the database has named its owner: an owner "
        "that asks is subscribed by then",
    ),
    Allowed(
        ("session_host/47/after-48",),
        "PS-160",
        "what is passed on for another client is refused by the resume, which looks at its client too",
    ),
    Allowed(
        ("group_member/31/deleted",),
        "PS-650",
        "the row says that nothing is done at this look, and an event that no row takes does nothing",
    ),
)  # fmt: skip
"""Each with the clause that allows it."""
