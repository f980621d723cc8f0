"""LeaderAllowed: mutants of the leader's side that change nothing a clause speaks of."""

from __future__ import annotations

from typing import Final

from statemachines_spec.protocol import AllowedMutants

ALLOWED: Final = (
    AllowedMutants(
        (
            "claim.look/1/1-is-2",
            "claim.take/1/1-is-2",
            "claim.load/1/1-is-2",
            "claim.scan/1/1-is-2",
            "claim.put_batch/1/1-is-2",
            "claim.check/1/1-is-2",
            "listing.list_after/2/1-is-2",
            "progress_cover.measure/2/1-is-2",
        ),
        "SS-153",
        "numbers tell requests apart, and which ones they are nobody can tell",
    ),
    AllowedMutants(
        ("group.read/4/1-is-2", "group.commit/3/1-is-2", "group.scan/3/1-is-2"),
        "SS-208",
        "numbers tell requests apart, and which ones they are nobody can tell",
    ),
    AllowedMutants(
        (
            "claim.begin/5/without-holder",
            "claim.begin/6/without-askers",
            "claim.begin/7/without-found",
            "claim.begin/8/without-found_at_ns",
            "claim.begin/9/without-ripe",
            "claim.begin/12/0-is-1",
        ),
        "SS-123",
        "whoever has taken the claim looks at no other any more, nor follows or passes on: what it knew of the one "
        "before is never read again, and is dropped to keep the record small",
    ),
    AllowedMutants(
        ("claim.put_batch/9/lt-is-lte",),
        "SS-128",
        "where all that is staged goes with the batch nothing is left, dropped at once or one by one",
    ),
    AllowedMutants(
        ("membership.take_end/1/lt-is-lte", "membership.take_report/1/lt-is-lte"),
        "SS-162",
        "where as many streams are live as before, a pass over the members gives them the shares that they have",
    ),
    AllowedMutants(
        ("listing.learn/17/gt-is-gte", "plan.Draft.keep_progress/2/gt-is-gte"),
        "SS-125",
        "a stream that is as it was known is put in its own place, unchanged",
    ),
    AllowedMutants(
        ("group.mark/5/0-is-1",),
        "SS-203",
        "the stamp of a mark is the store's: it is put in when the mark is committed, or read",
    ),
    AllowedMutants(
        ("listing.list_streams/2/1-is-2", "listing.open_ranks/1/1-is-2"),
        "SS-154",
        "generations and shards count from 0: whatever is below it stands for none",
    ),
    AllowedMutants(
        ("leader/65/after-66", "leader/68/after-69"),
        "SS-131",
        "a batch and the look-up of what became of it have two numbers, and what was written is not what was there",
    ),
    AllowedMutants(
        ("leader/18/after-68", "leader/24/after-65", "leader/37/after-48"),
        "SS-153",
        "no two requests have one number: the two guards never hold together",
    ),
    AllowedMutants(
        ("group/3/after-4", "group/4/after-5", "group/5/after-6"),
        "SS-200",
        "a group is declared, marked, or not there: the two guards never hold together",
    ),
    AllowedMutants(
        ("group/23/deleted", "group/23/to-reading", "group/23/negated", "group/23/after-24"),
        "SS-207",
        "what a store did not answer may be begun again from reading",
    ),
    AllowedMutants(
        ("leader/16/timer-halved", "leader/24/timer-halved", "leader/26/timer-halved"),
        "SS-121",
        "a commit interval later at most: sooner is allowed",
    ),
    AllowedMutants(
        ("leader/60/timer-halved",),
        "SS-127",
        "a heartbeat that meets a batch under way is made up for within a commit interval: sooner is allowed",
    ),
    AllowedMutants(
        ("group/11/to-sweeping", "group/12/to-sweeping"),
        "SS-205",
        "it stays in sweeping either way, and no timer belongs to that",
    ),
    AllowedMutants(
        ("assignment/7/to-granted",),
        "SS-82",
        "it stays granted either way, and no timer belongs to that",
    ),
    AllowedMutants(
        ("member/0/to-registered", "member/1/to-registered", "member/2/to-registered"),
        "SS-62",
        "whoever is registered anew has a validity from now on, as who is heard has",
    ),
    AllowedMutants(
        ("member/expiry/timer-dropped", "member/expiry/timer-doubled", "member/expiry/timer-halved"),
        "SS-60",
        "who is registered is answered in the same step, which sets its expiry once more, for a validity from now",
    ),
    AllowedMutants(
        ("member/4/timer-doubled", "member/4/timer-halved"),
        "SS-64",
        "a validity is longer than any lease (SS-210): when a member expires the end of its lease is a moment that is "
        "there, and twice or half of the time until then is none",
    ),
    AllowedMutants(
        ("leader/0/to-candidate",),
        "SS-120",
        "it has just begun: no timer is set that entering anew could cancel",
    ),
    AllowedMutants(
        ("leader/9/to-candidate",),
        "SS-120",
        "entering anew cancels a look that is still to come; the claim is asked for in this step, and whatever is "
        "answered it is taken, or the next look is set",
    ),
    AllowedMutants(
        ("leader/16/to-candidate", "leader/17/to-candidate"),
        "SS-121",
        "the look that entering anew cancels is set in the same step",
    ),
    AllowedMutants(
        ("leader/8/after-9",),
        "SS-123",
        "a claim that is ours is none that may be taken: the two guards never hold together",
    ),
    AllowedMutants(
        ("leader/21/after-22",),
        "SS-125",
        "a page is the last or not, never both: either may be asked first",
    ),
    AllowedMutants(
        ("leader/76/timer-halved",),
        "SS-134",
        "it ends as soon as the batch under way lets it: to ask for that sooner is allowed",
    ),
    AllowedMutants(
        ("leader/78/to-releasing",),
        "SS-133",
        "the end of the claim that entering anew cancels is set in the same step, by the batch that was committed",
    ),
    AllowedMutants(
        ("group/16/to-settling", "group/23/to-settling"),
        "SS-206",
        "the look that entering anew cancels is set in the same step",
    ),
    AllowedMutants(
        ("group/20/to-settling", "group/21/to-reading"),
        "SS-207",
        "the timer that entering anew cancels has just fired",
    ),
    AllowedMutants(
        ("claim.commit_again/2/without-trial",),
        "SS-131",
        "the batch that is sent again is under way in the same step, and takes the place of the one before",
    ),
    AllowedMutants(
        ("claim.release_disowned/2/without-trial",),
        "SS-139",
        "the batch that gives the claim up is under way in the same step, and takes the place of the one before",
    ),
    AllowedMutants(
        ("progress_cover.hold/9/without-free",),
        "SS-157",
        "a stream is free when its grant is over and gone from its member: nobody says anything under that grant "
        "any more, and while something is held there is no other",
    ),
    AllowedMutants(
        ("listing.learn/30/0-is-1",),
        "SS-163",
        "a stream behind what was committed is granted to nobody: there is no grant to compare that number with",
    ),
    AllowedMutants(
        ("listing.learn/3/without-loaded",),
        "SS-155",
        "what was loaded of a stream that is known is never read again, and goes in the listing that takes the "
        "stream back; it is dropped to keep the record small",
    ),
    AllowedMutants(
        ("plan.reassign/5/gt-is-gte",),
        "SS-162",
        "of whoever has just its share nothing is above it, and nothing is taken back",
    ),
)
