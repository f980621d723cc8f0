"""The comparison with zenoh's own subscriber: it counts what it says it counts, and fails where ours does not hold."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from statemachines.kernel import GaplessError
from statemachines.testing.missed_samples import side_by_side
from statemachines.testing.missed_samples.side_by_side import (
    Course,
    DeliveryOutcome,
    DeliveryTally,
    Figures,
    SideBySideCase,
)

KEPT = DeliveryOutcome(
    undelivered=0, reported=0, silent=0, disorder=0, duplicates=0, lost=3, recovered=3, median_ms=1.0, p99_ms=2.0
)
NUMBERS = range(10)


def told(*numbers: int) -> DeliveryTally:
    tally = DeliveryTally()
    for number in numbers:
        tally.deliver(number)
    return tally


def test_what_is_neither_delivered_nor_reported_is_silent() -> None:
    tally = told(*range(6))
    tally.miss(6, 7)
    found = tally.outcome(NUMBERS, {})
    assert not tally.is_settled(NUMBERS)
    assert (found.undelivered, found.reported, found.silent) == (4, 2, 2)
    assert (found.median_ms, found.p99_ms) == (None, None)
    tally.miss_some(2)
    assert tally.is_settled(NUMBERS)
    assert (tally.outcome(NUMBERS, {}).reported, tally.outcome(NUMBERS, {}).silent) == (4, 0)


def test_disorder_and_duplicates_are_told_apart() -> None:
    found = told(0, 2, 1, 3, 3, 2, 4).outcome(NUMBERS, {})
    assert (found.disorder, found.duplicates) == (1, 2)


def test_a_case_that_loses_nothing_shows_nothing() -> None:
    nothing = msgspec.structs.replace(KEPT, lost=0)
    assert "nothing was lost" in side_by_side.list_broken(Figures(SideBySideCase("a link", 10), nothing, nothing, 0))[0]
    replies = Figures(SideBySideCase("a link", 10, reply_loss=0.3), KEPT, KEPT, 0)
    assert "no reply was lost" in side_by_side.list_broken(replies)[0]


def test_a_course_loses_what_was_drawn_and_notes_when_it_was_put() -> None:
    said: list[str] = []
    course = Course(SideBySideCase("a link", 40, loss=0.3, tail=3), said.append, 7)
    for number in course.numbers:
        course.put(number)
    lost = [course.lose(f"frame #{number};".encode()) for number in course.numbers]
    assert said == [f"#{number};" for number in range(7, 47)]
    assert lost[-3:] == [True] * 3
    assert 3 < sum(lost) < 40
    assert set(course.lost) == {number for number, gone in zip(course.numbers, lost, strict=True) if gone}
    assert not course.lose(b"something else")
    assert not any(course.lose(f"frame #{number};".encode()) for number in course.numbers)  # only first transmissions


def test_the_end_is_seen_where_no_heartbeat_tells_of_it() -> None:
    course = Course(SideBySideCase("a link", 40, loss=1.0), print, 0)
    assert not any(course.lose(f"#{number};".encode()) for number in range(35, 40))
    assert course.lose(b"#34;")


def test_a_case_that_fails_says_why() -> None:
    with pytest.raises(GaplessError, match=r"a link ended with 1: .*ValidationError"):
        side_by_side.run_case(SideBySideCase("a link", 10, seed="drawn"), 1.0)


@pytest.mark.long
def test_some_cases_over_real_zenoh() -> None:
    """Samples, and samples with replies, of zenoh's publisher and of ours: ours holds, and the losses happened."""
    command = [sys.executable, "-m", "statemachines.testing.missed_samples.side_by_side", "--json"]
    few = ["--samples", "60", "--case", "30% of samples", "--patience", "1"]
    done = subprocess.run([*command, *few], capture_output=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    found = msgspec.json.decode(done.stdout, type=list[Figures])
    assert len(found) == 5
    assert sum(figures.case.by_ours for figures in found) == 1
    for figures in found:
        assert figures.ours.lost == figures.theirs.lost > 10
        assert (figures.lost_replies > 0) == (figures.case.reply_loss > 0)
        assert figures.ours.median_ms is None or figures.ours.median_ms >= figures.case.delay_ms
    assert all(figures.ours.recovered == figures.ours.lost for figures in found if figures.case.is_promised)


@pytest.mark.parametrize(("wrong", "said"), [(["--samples", "3"], "at least 10"), (["--case", "x"], "30% of samples")])
def test_what_cannot_be_is_said(wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        side_by_side.main(wrong)
    assert said in capsys.readouterr().err
