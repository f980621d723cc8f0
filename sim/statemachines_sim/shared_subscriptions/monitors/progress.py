"""Progress: what was published and acknowledged, by which S6, S16 and L5 are judged."""

from __future__ import annotations

from statemachines.shared_subscriptions.message import END_OF_STREAM, Ranges
from statemachines.shared_subscriptions.properties.granted_stream import list_earlier
from statemachines.shared_subscriptions.properties.known_progress import check_progress, check_ranges, is_unread
from statemachines.shared_subscriptions.properties.offset_ranges import OffsetRanges
from statemachines.shared_subscriptions.stream_store import rank_of
from statemachines_sim.judge import Judge

NOTHING = OffsetRanges()


class Progress:
    """`published`: messages of each stream; `acked`: what applications have dealt with; `oldest`: all generations
    before it were dropped, read or not; of those before `generation` every stream has ended; `said`: the most that a
    liar has said of a stream that was its own."""

    def __init__(self, judge: Judge) -> None:
        self.published: dict[str, int] = {}
        self.acked: dict[str, OffsetRanges] = {}
        self.oldest = 0
        self.generation = 0
        self.said: dict[str, int] = {}
        self._judge = judge

    def acknowledge(self, stream: str, first: int, last: int) -> None:
        """An application has dealt with messages."""
        self.acked[stream] = self.acked.get(stream, NOTHING).add(first, last)

    def say(self, stream: str, progress: int) -> None:
        """A liar speaks of a stream that was granted to it."""
        self.said[stream] = max(progress, self.said.get(stream, 0))

    def check(self, stream: str, progress: int, what: str) -> None:
        """One progress that somebody relies on.  What a liar has said of its own stream, and the store covers, cannot
        be told from the truth: it counts as acknowledged, and whoever loses by that had it as owner."""
        if stream in self.said:
            self._take_word(stream, min(progress, self.said[stream]))
        prefix = self.acked.get(stream, NOTHING).prefix
        count = max(prefix, self.published.get(stream, 0))  # what was read is there, also before its publisher knows
        if broken := check_progress(stream, progress, what, prefix, count):
            self._judge.report_properties(broken)

    def check_ranges(self, stream: str, ranges: Ranges, what: str) -> None:
        """What is said to be acknowledged behind a progress."""
        if ranges and stream not in self.said:
            self._judge.report_properties(check_ranges(stream, ranges, what, self.acked.get(stream, NOTHING)))

    def _take_word(self, stream: str, said: int) -> None:
        count = self.published.get(stream, 0)
        if said == END_OF_STREAM and rank_of(stream)[1] < self.generation:
            said = count
        if 0 < said <= count:
            self.acknowledge(stream, 0, said - 1)

    def list_unacknowledged(self) -> list[str]:
        """L5: streams of which something published is not acknowledged."""
        return [
            stream
            for stream, count in sorted(self.published.items())
            if is_unread(self.acked.get(stream, NOTHING).prefix, count)
            and (not self.oldest or rank_of(stream)[1] >= self.oldest)
        ]

    def list_before(self, stream: str) -> tuple[str, ...]:
        """Streams that were published to in earlier generations of the same shard, and are there still."""
        return list_earlier(stream, self.published, self.oldest)
