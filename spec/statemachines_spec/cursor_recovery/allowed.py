"""Allowed: mutants of the queue that no judge need notice, each by the clause that leaves it open."""

from __future__ import annotations

from statemachines_spec.protocol import AllowedMutants

ALLOWED = (
    AllowedMutants(
        ("block.commit_word/*",),
        "CR-44",
        "a word made from the position: which one no clause says, and writers and readers make the same",
    ),
    AllowedMutants(
        ("block.checksum/*",),
        "CR-50",
        "how many bytes of position and size it covers no clause says, and writers and readers reckon alike",
    ),
)  # fmt: skip
