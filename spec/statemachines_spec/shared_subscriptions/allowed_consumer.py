"""Mutants of the consumer's machines that no judge need notice, each with the clause that allows it."""

from __future__ import annotations

from typing import Final

from statemachines_spec.protocol import AllowedMutants

ALLOWED: Final = (
    AllowedMutants(
        ("borrower/8/after-9", "borrower/13/after-14", "borrower/15/after-16", "borrower/17/after-18"),
        "SS-15",
        "a message is of the pair that was adopted or of a higher one, never of both: either may be asked first",
    ),
    AllowedMutants(
        ("borrower/0/to-connecting", "borrower/1/to-connecting"),
        "SS-02",
        "the period counts from when the registry was asked, which is when the status is entered anew",
    ),
    AllowedMutants(
        ("borrower/8/to-connected",),
        "SS-08",
        "the timeout that is set as the status is entered anew is cancelled by the answer, in the same step",
    ),
    AllowedMutants(
        ("stream/9/to-absent", "stream/13/to-absent"),
        "SS-36",
        "it stays absent either way, a stream has no timers, and its record is a new one by what it has seen",
    ),
    AllowedMutants(
        ("stream/10/deleted", "stream/10/after-11"),
        "SS-37",
        "what is revoked is forgotten whether its grant is the one that is held or a higher one: the row after next "
        "does the same, and the one between is for lower grants alone",
    ),
    AllowedMutants(
        ("stream/5/after-7", "stream/6/after-7"),
        "SS-35",
        "a grant is equal or lower, never both: either may be asked first",
    ),
    AllowedMutants(
        ("stream/15/to-granted",),
        "SS-39",
        "a borrower that leaves hears neither grants nor revokes any more (SS-25), and all that it hears is decided "
        "alike for granted and revoking streams",
    ),
    AllowedMutants(
        ("stream/16/to-granted", "stream/16/to-revoking"),
        "SS-40",
        "its borrower ends in the same step, and nothing is asked of its streams after that",
    ),
    AllowedMutants(
        (
            "session/1/timer-doubled",
            "session/1/timer-halved",
            "session/6/timer-doubled",
            "session/6/timer-halved",
            "session/9/timer-doubled",
            "session/9/timer-halved",
            "session/13/timer-doubled",
            "session/13/timer-halved",
            "session/15/timer-doubled",
            "session/15/timer-halved",
        ),
        "SS-260",
        "the next fetch is set for now: twice or half of no time is no time",
    ),
    AllowedMutants(
        ("session/2/to-fetching", "session/7/to-fetching", "session/14/to-fetching", "session/16/to-fetching"),
        "SS-103",
        "it stays fetching either way, and no timer belongs to that",
    ),
    AllowedMutants(
        ("session/9/to-waiting",),
        "SS-101",
        "it stays waiting either way; the timer that entering anew cancels has just fired, and is set in the same step "
        "where turns are left",
    ),
    AllowedMutants(
        ("session/9/unguarded",),
        "SS-101",
        "where no turn waits there is none to pass by",
    ),
    AllowedMutants(
        ("session/15/after-17", "session/16/after-17"),
        "SS-108",
        "an acknowledgement is under the grant that is installed or another, never both: either may be asked first",
    ),
    AllowedMutants(
        ("private/1/to-listing",),
        "SS-190",
        "who has no filter asks for no streams, listing or reading, and takes progress alike in both",
    ),
    AllowedMutants(
        ("private/2/to-listing",),
        "SS-191",
        "it stays listing either way, and no timer belongs to that",
    ),
    AllowedMutants(
        ("private/2/after-3",),
        "SS-191",
        "a page is the last or not, never both: either may be asked first",
    ),
    AllowedMutants(
        ("private_subscription.add_last_page/2/without-seen",),
        "SS-191",
        "what a listing has found is forgotten as the next one begins, too, and in between nobody asks for it",
    ),
    AllowedMutants(
        (
            "session.tidy/1/lte-is-lt",
            "session.tidy/5/64-is-65",
            "session.tidy/6/64-is-63",
            "session.tidy/7/4-is-5",
            "session.tidy/8/4-is-3",
        ),
        "SS-110",
        "keys of readings that are gone are passed by, and change nothing; how many may lie there before they are "
        "thrown out is a bound on memory, and as good with one more or less",
    ),
    AllowedMutants(
        ("stream.is_lower/1/lt-is-lte",),
        "SS-35",
        "of a grant that is equal the rows above have decided already, and whatever is left is lower or higher",
    ),
    AllowedMutants(
        ("configuration.ask/4/1-is-2",),
        "SS-243",
        "numbers tell requests apart, and which ones they are nobody can tell",
    ),
    AllowedMutants(
        ("witness/1/to-asking",),
        "SS-241",
        "it stays asking either way, and no timer belongs to that",
    ),
    AllowedMutants(
        ("borrower.invalidate_itself/2/0-is-1",),
        "SS-173",
        "the next borrower knows the epoch that the claim named, whatever the one before it had seen; and who has "
        "a leader has seen an epoch, which count from 1",
    ),
    AllowedMutants(
        ("session.give_up_fetch/2/without-asked",),
        "SS-105",
        "what was asked for is read when an answer comes to the fetch that is open, and each fetch names its own",
    ),
    AllowedMutants(
        ("names.check_text/6/40-is-41", "names.check_text/7/40-is-39"),
        "SS-214",
        "how much of a name that is too long the refusal shows is as good with one character more or less",
    ),
)
