"""RecoveryWatch: the properties of recovery, judged by the ordinals of what was sent, lost, asked for and brought.

It knows what the network lost, because the network says so, and reckons anew what a publisher keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from statemachines.drivers.sequence_windows.recovery_query import RecoveryQuery
from statemachines.drivers.sequence_windows.subscriber import Delivery, Loss
from statemachines.sequence_windows.message import Verdict
from statemachines.sequence_windows.properties.handed_messages import (
    HandedMessages,
    judge_answer,
    judge_query,
    judge_settled,
    judge_source,
    judge_sum,
)
from statemachines.sequence_windows.sequence import number_of
from statemachines_sim.local_clock import PPM
from statemachines_sim.node_life import NodeLife
from statemachines_sim.sequence_windows.books import Place
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.recovery_answer import Returned
from statemachines_sim.sequence_windows.section import WindowSection
from statemachines_sim.units import MS, S

COUNTED = ("asked", "brought", "recovered", "given_up")
SLACK_NS = S // 100

Report = Callable[..., None]


class HeldLine:
    """What a receiver has of a place: what it `handed` over; the ordinals that the network `lost`, that `arrived`, and
    that answers `brought`, in time or `late`; `holes`: since when something is missing before which ordinal."""

    def __init__(self) -> None:
        self.handed = HandedMessages()
        self.lost: set[int] = set()
        self.arrived: set[int] = set()
        self.brought: set[int] = set()
        self.late: set[int] = set()
        self.holes: dict[int, int] = {}


class RecoveryWatch:
    """`report(broken, *where)` judges; `now()` is true time."""

    def __init__(self, own: WindowSection, report: Report, now: Callable[[], int]) -> None:
        self._own = own
        self._report = report
        self._now = now
        self._lives: dict[str, dict[Place, HeldLine]] = {}
        self._lost: dict[str, int] = {}
        self._ordinals: dict[Place, dict[int, int]] = {}
        self.counts = dict.fromkeys(COUNTED, 0)
        recover = own.recover
        longest = (recover.retries + 2) * (recover.timeout_ms + recover.backoff_max_ms) * MS
        self._longest_ns = longest * PPM // (PPM - 200) + SLACK_NS

    def judges(self, process: NodeLife) -> bool:
        """Whether it recovers."""
        return process.life in self._lives

    # -- who takes part ---------------------------------------------------------------------------------------------

    def listen(self, process: NodeLife) -> None:
        """A receiver that recovers begins."""
        self._lives[process.life] = {}
        self._lost[process.life] = 0

    def forget(self, process: NodeLife, subject: str) -> None:
        """It has subscribed the subject, or does no more: what was lost and what came stays so."""
        for place, line in self._lives[process.life].items():
            if place[1] == subject:
                line.handed = HandedMessages()
                line.brought.clear()
                line.late.clear()
                line.holes.clear()

    def observe_death(self, process: NodeLife) -> None:
        self._lives.pop(process.life, None)

    def resume(self, node: str) -> None:
        """Who stood still begins to wait anew."""
        for life, lines in self._lives.items():
            for line in lines.values() if life.rpartition("~")[0] == node else ():
                line.holes = dict.fromkeys(line.holes, self._now())

    def publish(self, place: Place, frame: int, base: int, ordinal: int) -> None:
        """A message has a number."""
        self._ordinals.setdefault(place, {})[number_of(frame, base)] = ordinal

    def answer(self, process: NodeLife, query: RecoveryQuery, ordinals: Iterable[int]) -> None:
        """NOGAP, first half: a publisher answers with all that it still has to have."""
        known = self._ordinals[process.life, query.subject]
        newest = len(known) - self._own.history
        owed = [one for number, one in known.items() if query.first <= number <= query.last and one >= newest]
        self._report(judge_answer(list(ordinals), owed), process.life, query)

    # -- receivers --------------------------------------------------------------------------------------------------

    def drop(self, life: str, carried: Carried) -> None:
        """The network has lost it on the way there."""
        if life in self._lives:
            self._line(life, (carried.publisher, carried.subject)).lost.add(carried.ordinal)

    def arrive(self, process: NodeLife, carried: Carried) -> None:
        """It has come by itself; what was lost since the last that came is waited for."""
        line = self._line(process.life, (carried.publisher, carried.subject))
        before = max(line.arrived, default=-1)
        line.arrived.add(carried.ordinal)
        if before >= 0 and any(before < one < carried.ordinal for one in line.lost):
            line.holes.setdefault(carried.ordinal, self._now())

    def ask(self, process: NodeLife, query: RecoveryQuery) -> None:
        """QUIET: what the network has lost, behind something of its frame that has come."""
        self.counts["asked"] += 1
        place = (query.publisher, query.subject)
        line, known = self._line(process.life, place), self._ordinals[place]
        ends = (known.get(query.first, -1), known.get(query.last, -1))
        frame = min((number for number in known if number >> 35 == query.frame), default=0)
        came = any(number in known and known[number] in line.arrived for number in range(frame, query.first))
        self._report(judge_query(ends, line.lost, came), process.life, query)

    def bring(self, process: NodeLife, message: Returned, in_time: bool) -> None:
        """A message of an answer has come; `in_time`: while its query was open, so that nobody had given it up."""
        self.counts["brought"] += 1
        line = self._line(process.life, (message.publisher, message.subject))
        if 0 <= line.handed.last < message.ordinal:
            if message.ordinal not in line.brought | line.late:
                line.holes = dict.fromkeys(line.holes, self._now())  # an answer that brings something begins anew
            (line.brought if in_time else line.late).add(message.ordinal)

    def lose(self, process: NodeLife, loss: Loss) -> None:
        """It says so; the message before which it is comes next."""
        self._lost[process.life] += loss.lost
        line = self._line(process.life, (loss.publisher, loss.subject))
        handed, broken = line.handed.tell_loss(loss.lost)
        self._report(broken, process.life, loss)
        line.handed = handed

    def deliver(self, process: NodeLife, one: Delivery) -> None:
        """The application is given a message."""
        place = (one.publisher, one.subject)
        line, ordinal = self._line(process.life, place), self._ordinals[place][one.number]
        missing = line.handed.list_missing(ordinal)
        if missing and one.verdict is Verdict.SKIP and not one.unknown:
            self.counts["given_up"] += one.lost
        handed, broken = line.handed.observe(ordinal, one.verdict, one.lost, one.unknown, line.brought)
        handed, unsaid = handed.attach_loss(one.lost)
        came = ordinal in line.arrived or ordinal in line.brought or ordinal in line.late
        brought_so = judge_source(came, one.recovered, ordinal in line.lost)
        self._report((*broken, *unsaid, *brought_so), process.life, one)
        line.handed = handed
        self.counts["recovered"] += one.recovered
        line.holes = {hole: line.holes[hole] for hole in handed.list_open(line.holes)}
        line.brought = set(handed.list_open(line.brought))

    def look(self, process: NodeLife) -> None:
        """SETTLED: nothing is waited for too long, while answers bring nothing."""
        if process.is_paused:
            return
        for place, line in self._lives[process.life].items():
            for hole, since in line.holes.items():
                self._report(judge_settled(self._now() - since, self._longest_ns), process.life, place, hole)

    def end(self, processes: Iterable[NodeLife]) -> str:
        """Once nothing is on its way: what is still waited for ("": nothing), and whether all counts agree."""
        for process in processes:
            if not self.judges(process):
                continue
            self.look(process)
            for place, line in self._lives[process.life].items():
                if line.holes:
                    return f"{process.life} waits for what is before messages {sorted(line.holes)} of {place}"
        return ""

    def judge_sum(self, process: NodeLife, counted: int) -> None:
        """What the receiver has counted is what it has said."""
        self._report(judge_sum(self._lost.get(process.life, counted), counted), process.life)

    def _line(self, life: str, place: Place) -> HeldLine:
        return self._lives[life].setdefault(place, HeldLine())
