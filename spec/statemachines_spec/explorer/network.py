"""Network: what the checker may do with a message between the time it is sent and the time it is handled."""

from __future__ import annotations

import msgspec

from statemachines.kernel import ConfigurationError

IN_FLIGHT_MAX = 16


class Network(msgspec.Struct, frozen=True):
    """`in_flight` bounds the messages on their way.

    A lossy network may drop each of them; where more are sent than there is room for, every choice of those that stay
    is explored (without loss the sender cannot take the step, which counts as cut at the bounds).  A duplicating one
    may hand over a copy and keep the message, any number of times.  An ordered one hands over the messages from one
    node to another in the order they were sent; otherwise any order.
    """

    in_flight: int = 2
    lossy: bool = True
    duplicating: bool = True
    ordered: bool = False

    def check(self) -> Network:
        """Itself; raises `ConfigurationError` for a bound that cannot be explored."""
        if not 1 <= self.in_flight <= IN_FLIGHT_MAX:
            raise ConfigurationError("in_flight", self.in_flight, f"must lie between 1 and {IN_FLIGHT_MAX}")
        return self

    def __str__(self) -> str:
        kinds = [
            "lossy" if self.lossy else "loses nothing",
            "duplicating" if self.duplicating else "duplicates nothing",
        ]
        if self.in_flight > 1:  # one message has no other to be overtaken by
            kinds.append("ordered" if self.ordered else "reordering")
        return f"{', '.join(kinds)}; at most {self.in_flight} in flight"
