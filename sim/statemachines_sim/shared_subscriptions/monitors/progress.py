"""Progress: what was published and acknowledged.  S6: no progress beyond what is acknowledged, S16: or beyond
what is stored; L5: all of it is."""

from __future__ import annotations

from statemachines.shared_subscriptions.message import END_OF_STREAM, Ranges
from statemachines.shared_subscriptions.stream_store import rank_of
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.monitors.coverage import Covered


class Progress:
    """`published`: messages of each stream; `acked`: what applications have dealt with; `oldest`: all generations
    before it were dropped, read or not; of those before `generation` every stream has ended; `said`: the most that a
    liar has said of a stream that was its own."""

    def __init__(self, judge: Judge) -> None:
        self.published: dict[str, int] = {}
        self.acked: dict[str, Covered] = {}
        self.oldest = 0
        self.generation = 0
        self.said: dict[str, int] = {}
        self._judge = judge

    def acknowledge(self, stream: str, first: int, last: int) -> None:
        """An application has dealt with messages."""
        self.acked.setdefault(stream, Covered()).add(first, last)

    def say(self, stream: str, progress: int) -> None:
        """A liar speaks of a stream that was granted to it."""
        self.said[stream] = max(progress, self.said.get(stream, 0))

    def check(self, stream: str, progress: int, what: str) -> None:
        """S6, and S16, for one progress that somebody relies on.  What a liar has said of its own stream, and the store
        covers, cannot be told from the truth: it counts as acknowledged, and whoever loses by that had it as owner."""
        if stream in self.said:
            self._take_word(stream, min(progress, self.said[stream]))
        prefix = self.acked[stream].prefix if stream in self.acked else 0
        whole = progress == END_OF_STREAM and prefix == self.published.get(stream, 0)
        count = max(prefix, self.published.get(stream, 0))  # what was read is there, also before its publisher knows
        if count < progress < END_OF_STREAM:
            self._judge.report_broken("S16", f"{stream}: {what} progress {progress}, and {count} messages are stored")
        if progress > prefix and not whole:
            self._judge.report_broken("S6", f"{stream}: {what} progress {progress}, acknowledged only below {prefix}")

    def check_ranges(self, stream: str, ranges: Ranges, what: str) -> None:
        """S6, for what is said to be acknowledged behind a progress."""
        acked = self.acked.get(stream, Covered())
        for first, last in ranges if stream not in self.said else ():
            if not acked.has(first, last):
                self._judge.report_broken("S6", f"{stream}: {first} to {last} are {what}, and were not acknowledged")

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
            if rank_of(stream)[1] >= self.oldest and (stream not in self.acked or self.acked[stream].prefix < count)
        ]

    def before(self, stream: str) -> list[str]:
        """Streams that were published to in earlier generations of the same shard, and are there still."""
        shard, generation = rank_of(stream)
        if generation <= self.oldest:
            return []
        ranks = ((other, rank_of(other)) for other in sorted(self.published))
        return [other for other, rank in ranks if rank[0] == shard and self.oldest <= rank[1] < generation]
