"""Rows about the step itself: against `transitions`, against code written by hand, and how it grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Effect, Event, Fsm, Node, Step
from statemachines.kernel.fsm import Model
from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerRecord
from statemachines_bench.borrower_mix import (
    Fed,
    list_connecting,
    list_granting,
    list_progressing,
    make_held_record,
    mix,
    new_record,
)
from statemachines_bench.hand_borrower import HandBorrower
from statemachines_bench.harness import compare
from statemachines_bench.measure import bytes_each, ns_per_event
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

SMALL, LARGE = 10, 100_000
"""Between so many streams `step-scale` looks at growth."""

TIMES = 8
"""The whole mix so often in one value of ours: once takes 15 ms, in which a neighbour on the machine decides."""

LITTLE = 40
"""Streams of the small size instead of `LARGE`."""

SCALE_EVENTS = 20_000
IDLE = 500
"""So many machines are made by each round of `idle`."""


TakeStep = Callable[[Any, Event, int], Step[Any]]


# -- what is run ----------------------------------------------------------------------------------------------------


def run_steps(step: TakeStep, record: Any, events: list[Fed]) -> Any:
    """The record after all events; what they want done is dropped."""
    for event, now_ns in events:
        record = step(record, event, now_ns).record
    return record


def run_hand(feed: Callable[[Any, int], list[Effect]], events: list[Fed]) -> None:
    """The same for something that changes in place."""
    for event, now_ns in events:
        feed(event, now_ns)


@contextmanager
def by_transitions(fsm: Fsm[Any]) -> Iterator[None]:
    """Within, this machine and its children step by `transitions`."""
    fsm.use_engine("transitions")
    try:
        yield
    finally:
        fsm.use_engine("compiled")


def hand_borrower(record: BorrowerRecord) -> HandBorrower:
    """A borrower written by hand, as new as the record."""
    return HandBorrower(record.id, record.group, record.filter, record.registries[0], record.configuration)


def make_held_hand(streams: int) -> HandBorrower:
    """As `held_record`: connected, with so many streams."""
    hand = hand_borrower(new_record())
    run_hand(hand.feed, list_connecting() + list_granting(streams))
    return hand


def make_mix(times: int, streams: int, seconds: int) -> tuple[int, list[Fed]]:
    """What the dispatch rows are run over, and how often in one value."""
    return times, mix(streams=streams, seconds=seconds)


def measure_own_ns(times: int, events: list[Fed]) -> float:
    """Nanoseconds a step of ours, over the whole mix, some times over."""
    record = new_record()
    return ns_per_event(lambda: [run_steps(BORROWER.step, record, events) for _ in range(times)], times * len(events))


def measure_transitions_ns(times: int, events: list[Fed]) -> float:
    """Nanoseconds a step by `transitions`, over the mix once."""
    record = new_record()
    with by_transitions(BORROWER):
        return ns_per_event(lambda: run_steps(BORROWER.step, record, events), len(events))


def measure_hand_ns(times: int, events: list[Fed]) -> float:
    """Nanoseconds an event of the class by hand, over the whole mix, some times over."""
    hands = [hand_borrower(new_record()) for _ in range(times)]

    def run() -> None:
        for hand in hands:
            run_hand(hand.feed, events)

    return ns_per_event(run, times * len(events))


# -- the rows -------------------------------------------------------------------------------------------------------


def prepare_step_scale(size: Size) -> TurnPair:
    """Every record and every hand-written borrower holds its streams before anything is timed."""
    large, count = size.pick(LARGE, LITTLE), size.pick(SCALE_EVENTS, 200)
    events = {streams: list_progressing(streams, count) for streams in (SMALL, large)}
    records = {streams: make_held_record(streams) for streams in (SMALL, large)}

    def ours(streams: int) -> float:
        return ns_per_event(lambda: run_steps(BORROWER.step, records[streams], events[streams]), count)

    def by_hand(streams: int) -> float:
        hand = make_held_hand(streams)
        return ns_per_event(lambda: run_hand(hand.feed, events[streams]), count)

    return TurnPair(lambda: ours(large) / ours(SMALL), lambda: by_hand(large) / by_hand(SMALL))


def prepare_idle(size: Size) -> TurnPair:
    """A machine that waits: our node, against a model that a prebuilt `transitions` machine looks after."""
    count = size.pick(IDLE, 20)
    record = new_record()
    machine = BORROWER.machine()

    def node(number: int) -> object:
        mine = replace(record, id=f"{record.id}{number}")
        return Node(BORROWER, mine, name=mine.id, now_ns=0)

    def model(number: int) -> object:
        made: Model[BorrowerRecord] = Model()
        made.record = replace(record, id=f"{record.id}{number}")
        machine.add_model(made)
        return made

    return TurnPair(lambda: bytes_each(node, count), lambda: bytes_each(model, count))


ROWS = (
    BenchRow(
        name="dispatch",
        about="a whole Borrower step, against the same rows through prebuilt transitions machines",
        unit="ns / event",
        baseline_name="transitions.Machine",
        prepare=compare(measure_own_ns, measure_transitions_ns, (TIMES, 100, 12), (1, 5, 1), make_mix),
        ratio=RatioKind.BASELINE_OVER_OURS,
        at_least=8,
        aim="12",
    ),
    BenchRow(
        name="dispatch-hand",
        about="a whole Borrower step, against a mutable class written by hand",
        unit="ns / event",
        baseline_name="HandBorrower",
        prepare=compare(measure_own_ns, measure_hand_ns, (TIMES, 100, 12), (1, 5, 1), make_mix),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=4,
    ),
    BenchRow(
        name="step-scale",
        about="growth of the Borrower's step from 10 to 100 000 streams, against that of a hand-written class",
        unit="x",
        baseline_name="HandBorrower",
        prepare=prepare_step_scale,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.5,
    ),
    BenchRow(
        name="idle",
        about="memory of a Borrower that waits, its record and timers included",
        unit="bytes",
        baseline_name="add_model of transitions",
        prepare=prepare_idle,
        ratio=RatioKind.BASELINE_OVER_OURS,
        aim="at most 1 000 bytes",
    ),
)
