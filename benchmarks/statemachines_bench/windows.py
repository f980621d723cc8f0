"""The rows about sequence windows: to say of a message what it is, to keep a million subjects, to forget them.

The class by hand does what an application would write for itself: the same verdicts, in plain `if`s over dictionaries.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random

from statemachines.sequence_windows.generations import Generations
from statemachines.sequence_windows.rotation import SUBSCRIBER_OVERHEAD, Window
from statemachines.sequence_windows.sequence import BASE_BITS, BASE_MAX, number_of
from statemachines.sequence_windows.subscriber_table import SubscriberTable
from statemachines_bench.harness import compare
from statemachines_bench.row import BenchRow, RatioKind

S = 1_000_000_000
T = 1659131646 * S
FRAME = 193148344
BEGIN = number_of(FRAME, 1)
Message = tuple[str, str, int]
"""Subject, publisher, number."""


class HandWritten:
    """A receiver by hand: (verdict, lost) of each message."""

    def __init__(self) -> None:
        self.last: dict[str, dict[str, int]] = {}

    def receive(self, subject: str, publisher: str, number: int, time_ns: int, chain: int) -> tuple[str, int]:
        """The rules in the order of the page."""
        publishers = self.last.get(subject)
        if publishers is None:
            publishers = self.last[subject] = {}
        last = publishers.get(publisher)
        if last is not None and number <= last:
            return "repeat", 0
        publishers[publisher] = number
        if last is None:
            return "first", 0
        if number == last + 1 and number & BASE_MAX:
            return "next", 0
        if number >> BASE_BITS == last >> BASE_BITS:
            return "skip", min(number - last - 1, 32767)
        if chain == last:
            return "next", 0
        if chain > last and chain >> BASE_BITS == last >> BASE_BITS:
            return "skip", min(chain - last, 32767)
        return ("cycle", 0) if number & BASE_MAX == 1 and not chain else ("skip", 1)


def mix_messages(count: int, subjects: int) -> list[Message]:
    """Of a hundred messages two are missing, and one comes twice."""
    chance, last = Random(1), dict.fromkeys(range(subjects), BEGIN - 1)
    found: list[Message] = []
    names = [f"RSF.REC.{n}.NaE" for n in range(subjects)]
    while len(found) < count:
        subject = chance.randrange(subjects)
        last[subject] += 2 if chance.random() < 0.02 else 1
        found.append((names[subject], "p~1", last[subject]))
        if chance.random() < 0.01:
            found.append(found[-1])
    return found


def rate(count: int, run: Callable[[], object]) -> float:
    """Messages a second of processor time."""
    began = time.process_time()
    run()
    return count / (time.process_time() - began)


def receiver() -> SubscriberTable:
    """A receiver of everything, whose window never turns."""
    return SubscriberTable(Window(1 << 50), 0, everything=True)


def ours_classify(messages: list[Message]) -> float:
    """Messages a second."""
    receive = receiver().receive_one

    def run() -> None:
        for subject, publisher, number in messages:
            receive(subject, publisher, number, 0, 0, T)

    return rate(len(messages), run)


def hand_classify(messages: list[Message]) -> float:
    """Messages a second."""
    receive = HandWritten().receive

    def run() -> None:
        for subject, publisher, number in messages:
            receive(subject, publisher, number, 0, 0)

    return rate(len(messages), run)


# -- many subjects --------------------------------------------------------------------------------------------------


def cost_ns(subjects: list[str], touch: Callable[[str], object], count: int) -> float:
    """Of one access to a subject by chance, the best of three rounds."""
    wanted = Random(3).choices(subjects, k=count)
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter_ns()
        for subject in wanted:
            touch(subject)
        best = min(best, (time.perf_counter_ns() - began) / count)
    return best


def names(count: int) -> list[str]:
    """So many subjects."""
    return [f"RSF.REC.{n:07}.NaE" for n in range(count)]


def touch_ours(subjects: list[str]) -> Callable[[str], object]:
    """The next message of a subject, at a receiver that knows all of them."""
    table, last = receiver(), dict.fromkeys(subjects, BEGIN)
    for subject in subjects:
        table.receive_one(subject, "p~1", BEGIN, 0, 0, T)

    def touch(subject: str) -> None:
        last[subject] = number = last[subject] + 1
        table.receive_one(subject, "p~1", number, 0, 0, T)

    return touch


def touch_dict(subjects: list[str]) -> Callable[[str], object]:
    """The same access to a dictionary of numbers, which is all that grows here."""
    last = dict.fromkeys(subjects, BEGIN)

    def touch(subject: str) -> None:
        last[subject] = last[subject] + 1

    return touch


def measure_growth(touch: Callable[[list[str]], Callable[[str], object]], most: int, count: int) -> float:
    """How many times more an access costs with so many subjects than with one."""
    few, many = names(1), names(most)
    return cost_ns(many, touch(many), count) / cost_ns(few, touch(few), count)


# -- forgetting -----------------------------------------------------------------------------------------------------


def longest_ms(steps: Callable[[], bool]) -> float:
    """The longest of all steps until one says that it was the last."""
    longest, goes_on = 0, True
    while goes_on:
        began = time.perf_counter_ns()
        goes_on = steps()
        longest = max(longest, time.perf_counter_ns() - began)
    return longest / 1e6


def ours_forget(count: int) -> float:
    """A million subjects are dropped, and freed in slices of a millisecond."""
    kept: Generations[list[int]] = Generations(SUBSCRIBER_OVERHEAD)
    for subject in names(count):
        kept.add(subject, [1])
    kept.flip()
    began = [False]

    def step() -> bool:
        if not began[0]:
            began[0] = True
            kept.flip()
            return True
        end = time.perf_counter_ns() + 1_000_000
        while kept.free():
            if time.perf_counter_ns() >= end:
                return True
        return False

    return longest_ms(step)


def dict_forget(count: int) -> float:
    """The same dictionary is dropped in one go."""
    kept = [{subject: [1] for subject in names(count)}]

    def step() -> bool:
        kept.clear()
        return False

    return longest_ms(step)


ROWS = (
    BenchRow(
        "window-classify",
        "what a message is, by its number: 1 000 subjects, losses and repeats among them",
        "messages/s",
        "a class written by hand",
        compare(
            ours_classify,
            hand_classify,
            (300_000, 1_000),
            (3_000, 1_000),
            lambda *given: (mix_messages(*given),),
        ),
        RatioKind.OURS_OVER_BASELINE,
        at_least=0.4,
        aim="0.5",
    ),
    BenchRow(
        "window-scale",
        "growth of the cost of a message, 1 to 1 000 000 subjects",
        "times",
        "growth of the cost of an access to a dictionary",
        compare(
            partial(measure_growth, touch_ours),
            partial(measure_growth, touch_dict),
            (1_000_000, 200_000),
            (1_000, 1_000),
        ),
        RatioKind.OURS_OVER_BASELINE,
        at_most=1.5,
    ),
    BenchRow(
        "rotation",
        "the longest stop while a generation of 1 000 000 subjects is dropped and freed",
        "ms",
        "a dictionary of as many is dropped",
        compare(ours_forget, dict_forget, (1_000_000,), (2_000,)),
        RatioKind.OURS_OVER_BASELINE,
        at_most=0.3,
        aim="10 ms",
    ),
)
