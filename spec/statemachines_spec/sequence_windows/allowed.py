"""Allowed: mutants of sequence windows that change nothing a clause speaks of."""

from __future__ import annotations

from typing import Final

from statemachines_spec.protocol import AllowedMutants

ALLOWED: Final = (
    AllowedMutants(
        ("publisher_window/0/to-absent",),
        "SW-09",
        "it stays absent either way, and a subject has no timers",
    ),
    AllowedMutants(
        ("publisher_window.new_stream/1/chain-is-record.last",),
        "SW-02",
        "of what begins without CHAIN the subject is absent, and has no number: the last one is none as well",
    ),
    AllowedMutants(
        ("subscriber_window/0/to-unsubscribed",),
        "SW-20",
        "it stays unsubscribed either way, and a subject has no timers",
    ),
    AllowedMutants(
        ("subscriber_window/6/after-7",),
        "SW-22",
        "what begins at or below the last number does not begin behind it: either may be asked first",
    ),
    AllowedMutants(
        ("subscriber_window/8/after-9",),
        "SW-08",
        "a CHAIN is to a number of an earlier frame: what is of the last number's own frame has none to it",
    ),
    AllowedMutants(
        ("subscriber_window/9/after-10",),
        "SW-25",
        "a CHAIN is the last number or a later one, never both: either may be asked first",
    ),
    AllowedMutants(
        ("subscriber_window.follows_later/2/gt-is-gte",),
        "SW-25",
        "of a CHAIN that is the last number the row above has decided already",
    ),
    AllowedMutants(
        ("subscriber_window/14/to-fresh", "subscriber_window/18/to-fresh"),
        "SW-78",
        "it stays fresh either way, and a subject has no timers",
    ),
    AllowedMutants(
        ("subject_publishers/2/to-roomy", "subject_publishers/5/to-roomy"),
        "SW-18",
        "it is roomy before: a crowded subject has no place left, and there are no timers",
    ),
    AllowedMutants(
        ("rotation/0/to-turning", "rotation/1/to-turning"),
        "SW-10",
        "a window has one state, and no timers",
    ),
    AllowedMutants(
        ("rotation.is_later/1/gt-is-gte", "late_join.is_later/1/gt-is-gte"),
        "SW-06",
        "of two times that are equal either is the latest",
    ),
    AllowedMutants(
        ("late_join/1/to-told", "late_join/3/to-told", "late_join/4/to-told", "late_join/5/to-told"),
        "SW-06",
        "it stays told either way, and there are no timers",
    ),
    AllowedMutants(
        ("late_join/2/to-untold",),
        "SW-33",
        "it stays untold either way, and there are no timers",
    ),
    AllowedMutants(
        ("loss_notifier/2/to-waiting",),
        "SW-42",
        "the second that entering anew sets ends with the one that the row sets",
    ),
    AllowedMutants(
        ("inbox_window/1/to-known", "inbox_window/2/to-known"),
        "SW-51",
        "it stays known either way, and there are no timers",
    ),
)
