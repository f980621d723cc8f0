"""Numbering: a judge of what a publisher numbers.

It knows what was sent, how often the window has turned since, and what the clocks said; a number is split by its own
arithmetic, and no frame is reckoned: it only asks whether a stream may begin in one.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from statemachines.sequence_windows.publisher_window import Stamped

BASES, FRAMES, NS = 2**35, 2**29, 2**33
"""Of a frame, of all, and of nanoseconds in a frame."""
FORGOTTEN = 2
"""So many flips after its last message a subject is forgotten."""


class NumberFault(Enum):
    """What is wrong with a number, or with the refusal of one."""

    MONO = "a number is not above all before it"
    FLOW = "a stream does not go on, or another does not say where the last one ended"
    EARLIEST = "a stream does not begin in the first frame that it may, or is refused while there is one"


class NumberingFacts(msgspec.Struct, frozen=True):
    """What there is to know when a subject is to be numbered: the `last` number that its publisher must remember (0:
    none), the highest frame that it ever `dropped`, the wall's clock, the latest convergence (0: nobody said)."""

    last: int
    dropped: int
    now_ns: int
    converged_ns: int

    @property
    def goes_on(self) -> bool:
        """Nothing ends the stream: it has bases, and began no frame before the convergence."""
        frame, base = divmod(self.last, BASES)
        return bool(self.last) and base + 1 < BASES and (frame + 1) * NS > self.converged_ns

    def is_over(self, frame: int) -> bool:
        """No stream may begin in it: it has passed, numbers of it may have been sent, or the network has converged
        since."""
        after = (frame + 1) * NS
        had = frame <= (self.last // BASES or self.dropped)
        return after <= self.now_ns or had or (bool(self.last) and after <= self.converged_ns)

    def faults(self, told: Stamped) -> set[NumberFault]:
        """What is wrong with the number of one message."""
        found: set[NumberFault] = set()
        if self.goes_on:
            as_it_is = (told.frame * BASES + told.first, told.last, told.time_ns, told.chain)
            return set() if as_it_is == (self.last + 1, told.first, 0, 0) else {NumberFault.FLOW}
        if (told.first, told.last, told.chain) != (1, 1, self.last):
            found.add(NumberFault.FLOW)
        in_time = told.time_ns // NS == told.frame and told.time_ns in (self.now_ns, told.frame * NS)
        if self.is_over(told.frame) or not self.is_over(told.frame - 1) or not in_time:
            found.add(NumberFault.EARLIEST)
        return found

    def faults_of_refusal(self) -> set[NumberFault]:
        """What is wrong with numbering nothing."""
        return {NumberFault.EARLIEST} if self.goes_on or not self.is_over(FRAMES - 1) else set()
