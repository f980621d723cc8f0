"""Mutants of the consumer's machines that no judge need notice, each with the clause that allows it."""

from __future__ import annotations

from typing import Final

from statemachines_spec.protocol import Allowed

ALLOWED: Final = (
    Allowed(
        ("borrower/8/after-9", "borrower/13/after-14", "borrower/15/after-16", "borrower/17/after-18"),
        "SS-15",
        "a message is of the pair that was adopted or of a higher one, never of both: either may be asked first",
    ),
    Allowed(
        ("borrower/0/to-connecting", "borrower/1/to-connecting"),
        "SS-02",
        "the period counts from when the registry was asked, which is when the status is entered anew",
    ),
    Allowed(
        ("borrower/8/to-connected",),
        "SS-08",
        "the timeout that is set as the status is entered anew is cancelled by the answer, in the same step",
    ),
)
