"""TimeLimits: what may take no longer than it takes: L2, L7, L8, L9, L11, S3 and S11, by clocks that an outsider sees.

The explorer knows no durations: it holds that each wait has a deadline that is set (`timers_needed`), and that it ends
(`settled_group`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from statemachines.kernel import BrokenProperty, Event, name_of
from statemachines.shared_subscriptions.configuration import MS, Configuration

PPM: Final = 1_000_000
TICK_NS: Final = 10 * MS
"""How late a timer may be, beyond what clocks are wrong by."""

LATE_READS: Final = 2
"""So many reads may still fail after a validity: a timer has patience, and a process may have stood still."""

Broken = tuple[BrokenProperty, ...]


class TimeLimits(msgspec.Struct, frozen=True, gc=False):
    """In true time.  `claim_ns`: so long a claim is watched at least.  `validity_ns`, `leaving_ns`, `answer_ns` and
    `resend_ns`, each with a tick for a timer that is late: so long last, at most, a validity, an unsubscribe, the wait
    for the answer to a grant, and that for its repetition.  `answer_least_ns`: a member has so long for its answer."""

    claim_ns: int
    validity_ns: int
    leaving_ns: int
    answer_ns: int
    answer_least_ns: int
    resend_ns: int
    lease_ns: int
    window: int

    def check_effect(self, gone: str, leader: str, waited_ns: int, what: str) -> Broken:
        """S11: nothing happens for a borrower that is gone more than a validity after it was heard last."""
        if waited_ns <= self.validity_ns:
            return ()
        late_ms = (waited_ns - self.validity_ns) // MS
        return (BrokenProperty("S11", f"{gone} is gone, and {what} by {leader} {late_ms} ms too late"),)

    def check_gone(self, gone: str, leader: str, waited_ns: int) -> Broken:
        """L9: no leader keeps a dead borrower for longer than that."""
        if waited_ns <= self.validity_ns:
            return ()
        late_ms = (waited_ns - self.validity_ns) // MS
        return (BrokenProperty("L9", f"{gone} is dead, and {leader} keeps it {late_ms} ms too long"),)

    def check_leaving(self, borrower: str, waited_ns: int) -> Broken:
        """L7: unsubscribing ends within its timeout."""
        if waited_ns <= self.leaving_ns:
            return ()
        return (BrokenProperty("L7", f"{borrower} has been unsubscribing for {waited_ns // MS} ms"),)

    def check_resets(self, quiet_ns: int) -> Broken:
        """L8: for the length of a lease no borrower had to end itself."""
        return () if quiet_ns >= self.lease_ns else (BrokenProperty("L8", "borrowers end themselves again and again"),)

    def check_answer(self, leader: str, grant: int, waited_ns: int) -> Broken:
        """L11: no leader waits for the answer to a grant for longer than a validity."""
        if waited_ns <= self.answer_ns:
            return ()
        return (BrokenProperty("L11", f"{leader} has waited {waited_ns // MS} ms for the answer to grant {grant}"),)

    def check_patience(self, leader: str, stream: str, grant: int, waited_ns: int) -> Broken:
        """L11: a member has a whole validity for each grant, from when that was sent."""
        if waited_ns >= self.answer_least_ns:
            return ()
        return (BrokenProperty("L11", f"{leader} gives up grant {grant} of {stream} after {waited_ns // MS} ms"),)

    def check_repeated(self, leader: str, stream: str, grant: int, quiet_ns: int) -> Broken:
        """L2: nobody is given up over a grant that was said once and lost."""
        if quiet_ns <= self.resend_ns:
            return ()
        detail = f"{leader} gives {stream} up, and said grant {grant} last {quiet_ns // MS} ms ago"
        return (BrokenProperty("L2", detail),)

    def check_window(self, leader: str, member: str, unanswered: int) -> Broken:
        """L11: a member has no more grants to answer at a time than the window."""
        if is_within_window(unanswered, self.window):
            return ()
        return (BrokenProperty("L11", f"{leader} waits for {unanswered} answers of {member} at a time"),)

    def check_reads(self, session: str, failing_ns: int, late_reads: int) -> Broken:
        """L2: a member whose reads have failed for a validity holds no stream."""
        if failing_ns <= self.validity_ns or late_reads <= LATE_READS:
            return ()
        return (BrokenProperty("L2", f"{session} has read nothing for {failing_ns // MS} ms, and keeps its streams"),)


def derive_limits(configuration: Configuration) -> TimeLimits:
    """The limits of a configuration, whose clocks are wrong by its drift at most."""
    millionths = round(configuration.clock_drift * PPM)

    def stretch(duration_ms: int) -> int:
        """How long a timer of one clock may last by another, where both are wrong by so much."""
        return duration_ms * MS * (PPM + millionths) // (PPM - millionths) + TICK_NS

    return TimeLimits(
        configuration.claim_ttl_ms * MS * PPM // (PPM + millionths),
        stretch(configuration.validity_ms),
        stretch(configuration.unsubscribe_timeout_ms),
        stretch(configuration.grant_wait_ms),
        configuration.grant_wait_ms * (PPM - millionths) // PPM * MS - TICK_NS,
        stretch(configuration.resend_interval_ms),
        configuration.lease_ms * MS,
        configuration.grant_window,
    )


def is_within_window(unanswered: int, window: int) -> bool:
    """L11: so many grants of one member may be unanswered, and so many of its streams be taken back, at a time."""
    return unanswered <= window


def check_claim_end(leader: str, at_ns: int, end_ns: int, event: Event) -> Broken:
    """S3: after the end of its claim, by its own clock, a leader does nothing else but end."""
    if at_ns < end_ns:
        return ()
    late = f"{(at_ns - end_ns) / 1e9:.3f} s after its claim ended"
    return (BrokenProperty("S3", f"{leader} takes {name_of(type(event))} {late}"),)
