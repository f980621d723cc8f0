"""Watch: the properties of missed samples, judged in every run from what came, what was asked for, and what was told.

It takes part in nothing.  Of a subscriber's record only this is read: which sources it keeps, when a timer or a token
says that one may be forgotten, and what it counts; of a cache's, what is in its queues.
"""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Node, Step
from statemachines.missed_samples.cache import CACHE, LetGo, NotKept
from statemachines.missed_samples.message import (
    EVERY_SOURCE,
    Deliver,
    DeliverUnnumbered,
    Heartbeat,
    Missed,
    Query,
    QueryEnded,
    Sample,
    TurnedAway,
)
from statemachines.missed_samples.properties import (
    AskedNumbers,
    Broken,
    ObservedSource,
    judge_places,
    judge_publication,
    judge_unwanted,
)
from statemachines.missed_samples.publisher import PUBLISHER, Publish
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.source_record import Appeared, Disappeared, RetentionOver
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines_sim import cluster
from statemachines_sim.cluster import SimCluster
from statemachines_sim.judge import Judge
from statemachines_sim.missed_samples.cache_judge import CacheJudge
from statemachines_sim.missed_samples.goals import Goals, is_early
from statemachines_sim.missed_samples.owed_samples import OwedSamples
from statemachines_sim.missed_samples.reader import SampleReader
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.missed_samples.tell_judge import ToldJudge
from statemachines_sim.node_life import NodeLife

PROPERTIES = (
    "NOGAP", "ORDER", "ONCE", "REPORT", "INVENTED", "HASTY", "QUIET", "ASKED", "LIVE", "ISOLATION", "TAIL", "BOUND",
    "PLACES", "FORGOTTEN", "WHOLE", "REPLIES", "QUEUES", "COUNT", "TIMING",
)  # fmt: skip
COUNTED = (
    "published", "delivered", "missed", "unnumbered", "queries", "turned_away", "not_kept", "let_go", "met",
    "forgotten", "most_sources", "longest_ms",
)  # fmt: skip
"""What a run counts, over all subscribers; `met`: first contacts; `longest_ms`: what was waited for longest."""

ALSO = {"HISTORY": "ORDER"}
"""A run has one property for what is told too early and too late."""


class SampleWatch(cluster.Watch):
    """The properties of `spec/missed_samples/properties.md`."""

    always_hears = False

    def __init__(self, own: SampleSection, judge: Judge) -> None:
        super().__init__(judge)
        self.own = own
        self.readers: dict[str, SampleReader] = {}
        self.sent: dict[str, int] = {}
        self.caches = CacheJudge(self._report, self._number)
        self.owed = OwedSamples(own, self._number)
        self.goals = Goals(own, self.owed, self.sent)
        self._counts = dict.fromkeys(COUNTED, 0)
        self._told = ToldJudge(own, self._report, self._counts)

    def begin(self, world: SimCluster) -> None:
        self._world = world

    def _report(self, where: str, broken: Broken) -> None:
        for one in broken if self.judging else ():
            self.judge.report_broken(ALSO.get(one.name, one.name), f"{where}: {one.detail}")

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        if node.fsm is PUBLISHER and isinstance(event, Publish):
            record = step.record
            self._report(record.source, judge_publication(record.next, self.sent.get(record.source, -1)))
            self._counts["published"] += event.count
            self.sent[record.source] = record.next
        elif node.fsm is CACHE:
            self.caches.step(node.name, event, step.record)
        elif node.fsm is SUBSCRIBER:
            reader = self.readers.setdefault(node.name, SampleReader(self.own, self._number))
            self._judge_last(reader, node.name)
            if isinstance(event, QueryEnded):
                self._judge_owed(reader, node.name, event)
            self._note(reader, event, now_ns)
            self._close(reader, node.name, event, step.record.sources, now_ns)
            self._judge_places(reader, node.name, step.record)
            self._judge_counts(reader, node.name, event, step.record)

    def _judge_last(self, reader: SampleReader, where: str) -> None:
        """What the step before should have told."""
        for source in sorted(reader.touched):
            one = reader.sources.get(source)
            if one is not None:
                self._report(f"{where}, {source}", one.seen.judge_step(one.recovery) + one.judge_idle())
        reader.touched.clear()
        self._report(where, reader.strangers.judge_silence())
        reader.periodic = ""

    def _note(self, reader: SampleReader, event: Event, now_ns: int) -> None:
        met = reader.met
        reader.note(event, now_ns)
        self._counts["met"] += reader.met - met
        self._counts["most_sources"] = max(self._counts["most_sources"], len(reader.sources))

    def _judge_owed(self, reader: SampleReader, where: str, ended: QueryEnded) -> None:
        """What the caches had that the query reached has come by now."""
        for one, numbers in sorted(self.owed.end(where, ended.source, ended.n).items()):
            known = reader.sources.get(one)
            if known is not None or one not in reader.gone:
                seen = ObservedSource() if known is None else known.seen
                self._report(f"{where}, {one}", seen.judge_owed(numbers))

    def _close(self, reader: SampleReader, where: str, event: Event, kept: Any, now_ns: int) -> None:
        """Whether a source should be forgotten, and what is forgotten."""
        source = event.key if isinstance(event, RetentionOver) else getattr(event, "source", "")
        one = reader.sources.get(source)
        if not isinstance(event, RetentionOver | Disappeared) or one is None or source in kept:
            return
        least = self.own.recovery.retention_ms * MS if one.seen.began >= 0 else 0
        self._report(f"{where}, {source}", one.seen.judge_forgotten(now_ns - one.heard_ns >= least))
        self._counts["forgotten"] += 1
        reader.forget(source)

    def _judge_places(self, reader: SampleReader, where: str, record: Any) -> None:
        """As many sources are kept as should be: whoever is pushed out, or taken in beyond the limit, shows."""
        self._report(where, judge_places(len(record.sources), len(reader.sources)))

    def _judge_counts(self, reader: SampleReader, where: str, event: Event, record: Any) -> None:
        """What is dropped, and what is turned away, is counted."""
        source = getattr(event, "source", "")
        one, kept = reader.sources.get(source), record.sources.get(source)
        if isinstance(event, Sample) and one is not None and kept is not None:
            self._report(f"{where}, {source}", one.seen.judge_count(kept.dropped))
        elif isinstance(event, Sample | Heartbeat | Appeared) and one is None:
            self._report(where, reader.strangers.judge_count(record.turned_away))

    # -- queries ------------------------------------------------------------------------------------------------------

    def observe_query(self, party: str, query: Query, now_ns: int) -> None:
        """A subscriber sent a query."""
        self._counts["queries"] += 1
        reader = self.readers[party]
        if query.source == EVERY_SOURCE:
            self._report(party, judge_unwanted(reader.history))
            reader.tries = query.n
            return
        first = self._number(query.source, query.first)
        periodic = reader.periodic == query.source
        asked = AskedNumbers(query.n, first, first + query.last - query.first, query.newest, periodic)
        one = reader.sources.get(query.source)
        if one is None:  # it is known to nobody: nothing of it is missing
            self._report(f"{party}, {query.source}", ObservedSource().observe_query(asked, self.own.recovery)[1])
            return
        hasty = one.is_hasty(now_ns)
        self._report(f"{party}, {query.source}", one.ask(asked))
        if hasty and self.judging:
            detail = f"{party} asks for {query.source} at {now_ns}, and should rest until {one.rests_until_ns}"
            self.judge.report_broken("TIMING", detail)

    # -- what is told -------------------------------------------------------------------------------------------------

    def tell(self, process: NodeLife, party: str, event: Event, now_ns: int) -> None:
        if not self.judging:
            return  # nobody has said what came
        match event:
            case Deliver(source, first, last) | Missed(source, first, last):
                number = self._number(source, first)
                reader = self.readers[party]
                self._told.tell(reader, process, party, event, number, number + last - first, now_ns)
            case TurnedAway(_, first, last):
                self._tell_stranger(party, event)
                self._counts["turned_away"] += last - first + 1
            case DeliverUnnumbered():
                self._tell_stranger(party, event)
                self._counts["unnumbered"] += 1
            case NotKept(_, _, first, last):
                self.caches.tell(party, event)
                self._counts["not_kept"] += last - first + 1
            case LetGo():
                self.caches.tell(party, event)
                self._counts["let_go"] += 1

    def _tell_stranger(self, party: str, event: TurnedAway | DeliverUnnumbered) -> None:
        reader = self.readers[party]
        reader.strangers, broken = reader.strangers.observe_told(event)
        self._report(party, broken)

    # -- lives --------------------------------------------------------------------------------------------------------

    def fault(self, kind: str, node: str, now_ns: int) -> None:
        process = self._world.processes.get(node)
        if kind == "resume" and process is not None and process.life in self.readers:
            self.readers[process.life].free_since_ns = now_ns

    def observe_death(self, process: NodeLife, now_ns: int) -> None:
        self.readers.pop(process.life, None)
        self.caches.observe_death(process.life)
        self.owed.observe_death(process.life)

    def missing(self, world: SimCluster) -> cluster.Missing | None:
        if is_early(world):
            return "LIVE", "samples are still on their way"
        for life, reader in sorted(self.readers.items()):
            process = next(one for _, one in sorted(world.processes.items()) if one.life == life)
            self._judge_last(reader, life)
            for _, one in sorted(reader.sources.items()):
                self._told.judge_wait(reader, process, one, world.now)
            broken = self.goals.judge(world, process.node, reader.sources)
            if broken:
                return broken[0].name, f"{life}: {broken[0].detail}"
        return None

    def _number(self, source: str, sn: int) -> int:
        """Which of the publisher's numbers it is: of those that there are, the one that the wire calls so."""
        width = self.own.width
        sent = self.sent.get(source, 1)
        return sn if width == 64 else sent - ((sent - sn) & ((1 << width) - 1))

    def tally(self) -> dict[str, int]:
        return self._counts
