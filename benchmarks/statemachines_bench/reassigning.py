"""The row about reassignment: one borrower joins a large group."""

from __future__ import annotations

from time import perf_counter_ns

from msgspec.structs import replace

from statemachines.kernel import Fifo, Map
from statemachines.shared_subscriptions.assignment import GRANTED, AssignmentRecord
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.leader_record import LEADING, KnownStream, LeaderRecord, Rank
from statemachines.shared_subscriptions.member import MemberRecord
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.shared_subscriptions.plan import split_shares
from statemachines.shared_subscriptions.stream import StreamLink
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

LARGE = (1_000, 100_000)
SMALL = (100, 10_000)
"""Members and streams."""


def group(members: int, streams: int) -> LeaderRecord:
    """A leader whose streams are shared out and granted."""
    configuration = Configuration()
    names = [f"c{number:05}~1/1" for number in range(members)]
    joined, assigned, listed, grant = {}, {}, {}, 0
    for number, (name, share) in enumerate(zip(names, split_shares(streams, members), strict=True)):
        link = StreamLink(name, "leader-1~1/1", 1, number + 1)
        grants = {}
        for _ in range(share):
            grant += 1
            stream = f"{grant % 4}.0/t{grant:06}"
            grants[grant] = stream
            listed[stream] = KnownStream(0, grant % 4, 0)
            assigned[stream] = AssignmentRecord(link, stream, grant, 0, 10**9, 5 * 10**9, 10**10, GRANTED)
        joined[name] = MemberRecord(link, configuration, count=share, share=share, grants=Map(grants))
    return LeaderRecord(
        "leader-1~1/1",
        "g",
        "#",
        configuration,
        status=LEADING,
        epoch=1,
        root_known=True,
        streams=Map(listed),
        ranks=Map({(shard, 0): rank(listed, shard) for shard in range(4)}),
        live=streams,
        members=Map(joined),
        registration=members,
        assignments=Map(assigned),
        grant=grant,
        free=Fifo(),
    )


def rank(listed: dict[str, KnownStream], shard: int) -> Rank:
    """The streams of one shard, all of one generation."""
    streams = {stream: True for stream, known in listed.items() if known.shard == shard}
    return Rank(Map(streams), len(streams), open=True)


def join_ms(record: LeaderRecord) -> float:
    """Milliseconds that the step takes in which one more joins."""
    record = replace(record)
    began = perf_counter_ns()
    step = LEADER.step(record, LeaderWanted("zzz~1/1", "g", "#"), 0)
    spent = perf_counter_ns() - began
    assert step.children
    return spent / 1e6


def prepare(size: Size) -> TurnPair:
    large, small = group(*size.pick(LARGE, (20, 200))), group(*size.pick(SMALL, (5, 20)))
    return TurnPair(lambda: join_ms(large), lambda: join_ms(small))


ROWS = (
    BenchRow(
        name="reassign-scale",
        about="one join in a group of 1 000 borrowers and 100 000 streams; growth from a tenth of both",
        unit="ms",
        baseline_name="a tenth of the group",
        prepare=prepare,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
)
