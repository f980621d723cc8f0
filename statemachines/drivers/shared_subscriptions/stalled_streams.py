"""StalledStreams: names in the log streams that stand still since a message is not acknowledged.

A stream is watched from when a message of it is handed over until nothing of it is in hand.  Now and then the watch
looks at some of the streams, in turn: one whose progress is what it was for the declared time is named.

LeaderlessGroups: names in the log the subscriptions of a session that no leader host has taken for long.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from statemachines.drivers.clock import Clock
from statemachines.kernel import ConfigurationError, in_order
from statemachines.shared_subscriptions.relaxed_order import find_in_hand, is_first_in_hand
from statemachines.shared_subscriptions.session_record import StreamReading

logger = logging.getLogger("gapless")

LOOKS: Final = 4
"""Each stream is looked at so often within the declared time."""
LOOK_MAX: Final = 1_000
"""One look is at no more streams than this."""
LINES_MAX: Final = 10
"""Lines within the declared time; of further streams the number alone is said."""


class Stand(msgspec.Struct, gc=False):
    """Since when a stream stands at `progress` under `grant`; `say_ns`: after that much more it is named (again);
    `is_full`: it was named for its full buffer."""

    grant: int
    progress: int
    since_ns: int
    say_ns: int
    is_full: bool = False


class StalledStreams:
    """`node`: who it is; `after_s`: the declared time (`math.inf`: nothing is watched); `clock`: the steady one;
    `reading_of`: what the session knows of a key now.

    Raises `ConfigurationError` for a time that is not above 0.
    """

    def __init__(self, after_s: float, clock: Clock, reading_of: Callable[[str], StreamReading | None]) -> None:
        if not after_s > 0:
            raise ConfigurationError("stall_warning_s", after_s, "must be seconds above 0, or math.inf for none")
        self.node = ""
        self._after_s = after_s
        self._after_ns = 0 if math.isinf(after_s) else round(after_s * 1e9)
        self._clock = clock
        self._reading_of = reading_of
        self._stands: OrderedDict[str, Stand] = OrderedDict()
        self._wake: asyncio.TimerHandle | None = None
        self._lines = self._left_out = 0
        self._window_ns = -self._after_ns

    def hand_over(self, key: str) -> None:
        """A message of this reading was handed over."""
        if key in self._stands or not self._after_ns:
            return
        reading = self._reading_of(key)
        at = None if reading is None else find_in_hand(reading)
        if reading is None or at is None:
            return
        self._stands[key] = Stand(reading.grant, at, self._clock(), self._after_ns)
        if self._wake is None:
            self._look_soon()

    def acknowledge(self, key: str, buffer: int) -> None:
        """Messages of this reading were acknowledged.  A message that was left out is named at once where its stream
        waits for nothing else: all that was fetched is in hand, no more is fetched while it fills more than half of the
        buffer, and all behind the message was acknowledged."""
        stand, reading = self._stands.get(key), self._reading_of(key)
        if stand is None or reading is None:
            return
        if reading.delivered < reading.fetched or 2 * (reading.delivered - reading.progress) <= buffer:
            return
        if not is_first_in_hand(reading):
            return  # it was given back, and its stream goes on
        is_same = (reading.grant, reading.progress) == (stand.grant, stand.progress)
        if not (is_same and stand.is_full) and has_left_one_out(reading):
            now_ns = self._clock()
            if not is_same:
                stand.grant, stand.progress = reading.grant, reading.progress
                stand.since_ns, stand.say_ns = now_ns, self._after_ns
            stand.is_full = True
            self._say(reading, now_ns - stand.since_ns)

    def look(self) -> None:
        """Look at the streams whose turn it is, and plan the next look."""
        now_ns = self._clock()
        if now_ns - self._window_ns >= self._after_ns:
            self._begin_window(now_ns)
        for _ in range(min(len(self._stands), LOOK_MAX)):
            key, stand = self._stands.popitem(last=False)
            reading = self._reading_of(key)
            at = None if reading is None else find_in_hand(reading)
            if reading is None or at is None:
                continue
            self._stands[key] = stand
            if (reading.grant, at) != (stand.grant, stand.progress):
                stand.grant, stand.progress = reading.grant, at
                stand.since_ns, stand.say_ns, stand.is_full = now_ns, self._after_ns, False
            elif now_ns - stand.since_ns >= stand.say_ns:
                stand.say_ns *= 2
                self._say(reading, now_ns - stand.since_ns)
        self._wake = None
        if self._stands:
            self._look_soon()

    def close(self) -> None:
        """Look no more."""
        if self._wake is not None:
            self._wake.cancel()

    # -- inside -------------------------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        """Sooner where there are more streams than one look is at."""
        looks = LOOKS * -(-len(self._stands) // LOOK_MAX)
        self._wake = asyncio.get_running_loop().call_later(self._after_s / looks, self.look)

    def _begin_window(self, now_ns: int) -> None:
        if self._left_out:
            what = "%s: %d more streams stand, each since a message is not acknowledged"
            logger.warning(what, self.node, self._left_out)
        self._window_ns, self._lines, self._left_out = now_ns, 0, 0

    def _say(self, reading: StreamReading, stood_ns: int) -> None:
        first = find_in_hand(reading)
        if self._lines >= LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        logger.warning(
            "%s: stream %s stands at %d for %.1f s: message %d is not acknowledged; await ack() of every message (%d"
            " are in hand, and no more than the buffer are handed over)",
            self.node,
            reading.stream,
            reading.progress,
            stood_ns / 1e9,
            first,
            reading.delivered - reading.progress,
        )


def has_left_one_out(reading: StreamReading) -> bool:
    """All that is in hand was acknowledged but for the first message."""
    end = reading.progress + 1
    for first, last in in_order(reading.acked):
        if first > end:
            return False
        end = max(end, last + 1)
    return end >= reading.delivered > reading.progress + 1


AFTER_S: Final = 10.0
"""After so long a subscription is named, then after twice that time, and so on."""


WAITS: Final = (
    "%s: no leader host has taken %s for %.0f s; is `gapless node leader` running, on this store and with the same "
    "times (--config)? Its log says why it does not lead a group"
)


def name_first(names: list[str]) -> str:
    """The first of them, and how many there are beside it: one line of the log is enough for a thousand."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} other subscriptions"


class LeaderlessGroups:
    """`clock`: the steady one; `list_waiting`: the subscriptions that have no leader now."""

    def __init__(self, clock: Clock, list_waiting: Callable[[], Iterable[str]]) -> None:
        self.node = ""
        self._clock = clock
        self._list_waiting = list_waiting
        self._since: dict[str, tuple[int, float]] = {}
        self._wake: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Look at the subscriptions, and plan the next look."""
        now_ns = self._clock()
        before, self._since = self._since, {}
        said: list[str] = []
        longest_s = 0.0
        for name in self._list_waiting():
            since_ns, say_s = before.get(name, (now_ns, AFTER_S))
            waited_s = (now_ns - since_ns) / 1e9
            if waited_s >= say_s:
                said.append(name)
                longest_s = max(longest_s, waited_s)
                say_s *= 2
            self._since[name] = since_ns, say_s
        if said:
            logger.warning(WAITS, self.node, name_first(said), longest_s)
        self._wake = asyncio.get_running_loop().call_later(AFTER_S / LOOKS, self.look)

    def close(self) -> None:
        """Look no more."""
        if self._wake is not None:
            self._wake.cancel()
