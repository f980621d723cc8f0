"""Traces of sessions: a real run and a story hold, each tampering is found by its check, a missing log is named."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from session_story import (
    FIRST,
    MS,
    SECOND,
    SESSION,
    THIRD,
    WRITER,
    Story,
    columns_of,
    told,
    told_of_a_move,
    told_of_age,
)

from statemachines import registry
from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher
from statemachines.persistent_sessions.message import MessageExpired, Publish, Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    PutRows,
    RowRead,
    SessionLoaded,
    SessionState,
    StateCommitted,
)
from statemachines.persistent_sessions.takeover_record import TakenOver
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow_record import Take as Taken
from statemachines.persistent_sessions.writer_record import Hand, LiveKnown
from statemachines.testing.process_harness import free_port
from statemachines.trace import COLUMNS, event_row
from statemachines_reports.columns import Segment, read_columns
from statemachines_reports.judge import Absent, Judges
from statemachines_reports.page import part_of, write_page
from statemachines_reports.persistent_sessions.measured import Resume, Takeover
from statemachines_reports.persistent_sessions.report import absent, find
from statemachines_reports.pipeline import analyze
from statemachines_reports.protocol import Latency, Tally
from statemachines_reports.trace_set import merge_logs
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario

PS = "persistent_sessions"
JUDGES = Judges([registry.protocol(PS)])
OWN = ("gap", "twice", "order", "cut", "owner", "aged", "epochs")
COPIES_MAX = 2  # a simulated subscriber has so many filters


def segment_of(columns):
    return Segment(columns, JUDGES.lookup, lambda run: {})


def judged(columns):
    """Check -> what is wrong, in words."""
    segment = segment_of(columns)
    verdicts = {name: check.judge(segment) for name, _, check in JUDGES.checks if name in OWN}
    return {name: [one.describe(place) for place in range(len(one.run))] for name, one in verdicts.items()}


def test_a_story_holds_and_everything_is_looked_at():
    segment = segment_of(columns_of(told()))
    verdicts = {name: check.judge(segment) for name, _, check in JUDGES.checks if name in OWN}
    assert {name: len(one.run) for name, one in verdicts.items()} == dict.fromkeys(OWN, 0)
    assert {name: one.checked for name, one in verdicts.items()} == {
        "gap": 17, "twice": 28, "order": 9, "cut": 7, "owner": 52, "aged": 0, "epochs": 34
    }  # fmt: skip
    assert list(absent(segment)) == []


def test_what_is_measured_of_a_story():
    rows = told()
    found = list(find(segment_of(columns_of(rows))))
    sums = {one.name: one.value for one in found if isinstance(one, Tally)}
    assert sums == {"stored": 10, "taken": 10, "sent_new": 9, "sent_again": 1, "fences": 1, "waiting": 0}
    resumes = [one for one in found if isinstance(one, Resume)]
    assert [(one.pending, one.kept) for one in resumes] == [(3, 2), (3, 0), (1, 0)]
    assert [one for one in found if isinstance(one, Takeover)] == [Takeover(0, "handed")]
    (fail_over,) = [one for one in found if isinstance(one, Latency) and one.measure == "fail_over"]
    died, normal = of(rows, kind="fault")[0], of(rows, instance=SECOND, dest="normal")[0]
    assert (fail_over.cause, fail_over.value_ns) == ("kill", (normal - died) * MS)
    begun, resumed = of(rows, event="resume_session")[0], of(rows, dest="normal")[0]
    assert resumes[0].took_ns == (resumed - begun) * MS
    stores = [one for one in found if isinstance(one, Latency) and one.measure == "store"]
    assert [one.cause for one in stores].count("calm") == 2
    assert {one.value_ns for one in stores[:8]} == {2 * MS}


# -- tampering ------------------------------------------------------------------------------------------------------


def of(rows, **wanted):
    """Places of rows with these values."""
    return [place for place, row in enumerate(rows) if all(row[key] == value for key, value in wanted.items())]


def drop(**wanted):
    def tamper(rows):
        del rows[of(rows, **wanted)[0]]

    return tamper


def drop_all(**wanted):
    def tamper(rows):
        rows[:] = [row for row in rows if any(row[key] != value for key, value in wanted.items())]

    return tamper


def change(change, at=0, **wanted):
    def tamper(rows):
        rows[of(rows, **wanted)[at]].update(change)

    return tamper


def copy_behind(behind, changes=(), **wanted):
    """The row once more, behind the first with those values."""

    def tamper(rows):
        row = dict(rows[of(rows, **wanted)[0]]) | dict(changes)
        rows.insert(of(rows, **behind)[0] + 1, row)

    return tamper


def swap(one, other):
    def tamper(rows):
        first, second = of(rows, **one)[0], of(rows, **other)[0]
        rows[first], rows[second] = rows[second], rows[first]

    return tamper


def keep_until_the_end(**wanted):
    def tamper(rows):
        rows.append(rows.pop(of(rows, **wanted)[0]))

    return tamper


SENT = {"event": "publish"}
STALE_COMMIT = {"event": "state_committed", "instance": f"{SECOND}:{SESSION}"}

TAMPERED = {
    "a row that nobody takes": ("gap", drop(event="take", first=7), "1/7 (m7) was never taken, 2/2 was"),
    "the first row is left out": ("gap", change({"first": 2}, event="take", first=1), "1/1 (m1) was never taken"),
    "a row of the last epoch is left out": ("gap", drop(event="take", first=8), "1/8 (m8) was never taken"),
    "an owner leaves out a row": (
        "gap", change({"first": 6, "last": 6}, event="take", first=4), "takes 1/6 behind 1/3",
    ),
    "an owner begins an epoch amid": ("gap", change({"first": 2}, event="take", term=2, first=1), "takes 2/2 behind"),
    "an epoch that is over": (
        "gap", change({"term": 0, "last": 1}, event="take", term=2, first=1), "takes 0/1 behind 1/8",
    ),
    "normal without what was stored": (
        "gap",
        keep_until_the_end(event="take", first=7),
        "is in normal operation without 1/7",
    ),
    "what nobody has stored": ("gap", change({"last": 3}, event="take", term=2, first=2), "2/3 was taken, and nobody"),
    "what was refused": ("gap", change({"last": 9}, event="take", term=1, first=8), "1/9 was taken, and nobody"),
    "what is taken and not sent": ("gap", drop(**SENT, key="m8"), "1/8 (m8) was taken and never sent"),
    "what is lost by another": ("gap", drop(**SENT, key="m7"), "1/7 (m7) was taken and never sent"),
    "what is committed is taken again": ("twice", change({"first": 5}, event="take", first=7), "1/5 is taken again by"),
    "what is committed is committed again": (
        "twice", copy_behind({"event": "publish", "key": "m7"}, event="mark_delivered", first=7), "a second time",
    ),
    "what was sent is sent as new": ("twice", change({"grant": 0}, **SENT, grant=1), "m5 is sent by b~1/1 as new"),
    "a repetition under another packet": ("twice", change({"first": 6}, **SENT, grant=1), "m5 is sent by b~1/1 as new"),
    "two change places": ("order", swap(SENT | {"key": "m2"}, SENT | {"key": "m3"}), "1/2 is sent by a~1/1 behind 1/3"),
    "two epochs change places": ("order", swap(SENT | {"key": "m8"}, SENT | {"key": "m9"}), "behind 2/1"),
    "from the marker on from the database": (
        "cut", change({"last": 4}, event="take", first=1, term=1), "takes 4 from the database, and the marker says 4",
    ),
    "not all below the marker": (
        "cut", change({"last": 2}, event="take", first=1, term=1), "from 4 on, and has taken up to 2",
    ),
    "less than was kept": ("cut", change({"last": 4}, event="take", first=4), "takes 4 to 4, and has kept 4 to 5"),
    "what was kept is forgotten": ("cut", drop(event="take", first=4), "has kept 4 to 5, and does not take it"),
    "what was handed over is above the marker": (
        "cut", change({"first": 2}, event="live_marker", instance=f"{THIRD}:w"), "takes 2 from the database",
    ),
    "who has yielded sends": (
        "owner", copy_behind({"dest": "yielding"}, {"key": "m9", "grant": 1}, **SENT, key="m9"), "and has yielded",
    ),
    "who has yielded commits": (
        "owner", copy_behind({"dest": "yielding"}, event="commit_state", instance=SECOND), "asks for a commit, and has",
    ),
    "who has yielded commits what was acknowledged": (
        "owner",
        copy_behind(
            {"dest": "yielding"}, {"instance": f"{SECOND}/acknowledged"}, event="commit_state", instance=SECOND
        ),
        "asks for a commit, and has",
    ),
    "somebody has taken over": (
        "owner",
        copy_behind({"event": "takeover_begun"}, {"instance": FIRST, "grant": 1}, **SENT, key="m5"),
        "sends m5 under token 1, and 3 has taken over",
    ),
    "a commit is not refused": (
        "owner", keep_until_the_end(event="commit_state", instance=THIRD), "",
    ),
    "an older token loads": ("owner", change({"term": 1}, event="load_session", instance=THIRD), "and 2 was there"),
    "not committed yet": (
        "owner", swap(SENT | {"key": "m4"}, {"event": "mark_delivered", "first": 4}), "has not committed that",
    ),
    "an epoch that somebody had": ("epochs", change({"term": 0}, event="epoch_begun"), "begins with epoch 0"),
    "a number is left out": (
        "epochs", change({"first": 5, "last": 5}, event="put_rows", first=4), "numbers 5 under epoch 1",
    ),
    "numbers go on in the next epoch": (
        "epochs", change({"first": 9, "last": 9}, event="put_rows", term=2, first=1), "numbers 9 under epoch 2",
    ),
    "stored under an epoch that was raised": (
        "epochs", change({"term": 1, "first": 9, "last": 9}, event="put_rows", term=2, first=1),
        "stored 1/9 after epoch 2",
    ),
    "a fence that raises nothing": ("epochs", change({"term": 0}, event="fenced_rows"), "fenced below 0, and epoch 1"),
    "a fence below less than was asked": (
        "epochs", change({"term": 3}, event="fence"), "fenced below 2, and epoch 3 was there, or wanted",
    ),
    "another message than was handed over": (
        "epochs", change({"key": "m9"}, event="put_rows", term=1, first=1), "asks for m9 as 1/1 to 1, and m1 is next",
    ),
}  # fmt: skip


def stale_commit(rows):
    """The second owner commits under its token when the third has loaded the state, and the database lets it."""
    place = of(rows, instance=THIRD, event="session_loaded")[0] + 1
    asked = dict(rows[of(rows, event="commit_state", instance=SECOND)[0]])
    rows[place:place] = [asked, dict(rows[of(rows, **STALE_COMMIT)[0]])]


TAMPERED["a commit is not refused"] = ("owner", stale_commit, "commits under token 2, and it had been loaded under 3")


@pytest.mark.parametrize("what", TAMPERED)
def test_what_is_wrong_is_found_by_its_check(what):
    check, tamper, words = TAMPERED[what]
    rows = told()
    tamper(rows)
    found = judged(columns_of(rows))
    assert any(words in one for one in found[check]), found


def test_what_retention_has_removed_is_not_missed():
    rows = told()
    change({"grant": 1}, event="take", first=7)(rows)
    drop(**SENT, key="m7")(rows)
    assert judged(columns_of(rows)) == {name: [] for name in OWN}


def test_a_request_that_was_under_way_when_somebody_loaded_the_state_may_be_committed():
    rows = told()
    place = of(rows, instance=THIRD, event="session_loaded")[0]
    asked = dict(rows[of(rows, event="commit_state", instance=SECOND)[0]])
    acknowledged = asked | {"instance": f"{SECOND}/acknowledged"}  # nobody hears of that one
    rows[place + 1 : place + 1] = [acknowledged, dict(rows[of(rows, **STALE_COMMIT)[0]])]
    rows.insert(place, asked)
    assert judged(columns_of(rows))["owner"] == []


@pytest.mark.parametrize(
    ("gone", "log"),
    [
        (lambda row: row["instance"] == WRITER, "w"),
        (lambda row: row["instance"] == WRITER and row["seq"] < 20, "a life of w"),
        (lambda row: row["instance"].startswith(FIRST), "a~1"),
    ],
)
def test_a_log_that_is_missing_is_named(gone, log):
    rows = [row for row in told() if not gone(row)]
    found = [one for _, one in JUDGES.judge(segment_of(columns_of(rows)), {}) if isinstance(one, Absent)]
    assert found == [Absent(0, log)]


def before(rows, more, **wanted):
    """More rows, before the first with those values."""
    place = of(rows, **wanted)[0]
    rows[place:place] = more


def test_what_is_stored_while_a_session_resumes_may_come_later():
    rows, more = told(), Story()
    more.store(2, 3, "m11")
    before(rows, more.rows, instance=THIRD, dest="normal")
    columns = columns_of(rows)
    assert judged(columns) == {name: [] for name in OWN}
    assert Tally(0, "waiting", 1) in list(find(segment_of(columns)))


def story_of_a_range():
    """m1 alone, m2 and m3 in one range that is refused first, and taken from the next epoch."""
    story = Story()
    story.load(FIRST, 1)
    story.begin_epoch(1)
    for number in (1, 2, 3):
        story.hand(f"m{number}")
    story.put(1, 1, "m1")
    story.write("row_stored", dest="storing")
    story.take(FIRST, 1, 1, 1)
    story.commit(FIRST, 1, 1, 1)
    story.send(FIRST, "m1", 1)
    story.put(1, 2, "m2", last=3)
    story.write("row_fenced", term=2)
    story.put(2, 1, "m2", last=2)
    story.write("row_stored")
    story.take(FIRST, 2, 1, 2)
    story.commit(FIRST, 1, 2, 1, 2)
    story.send(FIRST, "m2", 2)
    story.send(FIRST, "m3", 3)
    for number, row in enumerate(story.rows):
        row["seq"] = number
    return story.rows


@pytest.mark.parametrize(
    ("check", "tamper", "words"),
    [
        (
            "epochs",
            change({"last": 3}, event="put_rows", term=2),
            "to 3, and m2 is next of 2 that it was handed",
        ),
        ("epochs", change({"first": 2, "last": 3}, event="put_rows", term=2), "numbers 2 under epoch 2"),
        ("epochs", change({"key": "m3"}, event="put_rows", term=2), "and m2 is next"),
        ("epochs", swap({"event": "hand", "key": "m1"}, {"event": "hand", "key": "m3"}), "and m3 is next"),
        ("epochs", change({"first": 9}, event="put_rows", term=2), "asks for m2 as 2/9 to 2"),
        ("gap", change({"first": 2}, event="take", term=2), "2/1 (m2) was never taken"),
        ("order", swap({"event": "publish", "key": "m2"}, {"event": "publish", "key": "m3"}), "behind 2/2"),
    ],
)
def test_PS_400_each_row_of_a_range_is_followed(check, tamper, words):
    rows = story_of_a_range()
    assert judged(columns_of(rows)) == {name: [] for name in OWN}
    assert Tally(0, "stored", 3) in list(find(segment_of(columns_of(rows))))
    tamper(rows)
    found = judged(columns_of(rows))
    assert any(words in one for one in found[check]), found


def test_a_row_may_be_taken_before_its_writer_hears_that_it_is_stored():
    rows = told()
    place = of(rows, event="row_stored")[6]
    assert (rows[place - 1]["key"], rows[place - 1]["event"]) == ("m7", "put_rows")
    stored = rows.pop(place)
    before(rows, [stored], event="hand", key="m8")
    assert judged(columns_of(rows)) == {name: [] for name in OWN}


def test_a_writer_that_reads_its_row_back_has_stored_it_if_it_is_there():
    for there in (1, 0):
        rows, more = told(), Story()
        more.write("row_unclear", "storing", "reading")
        more.write("row_read", "reading", "storing" if not there else "idle", first=there)
        place = of(rows, event="row_stored")[2]
        for row in more.rows:
            row["t_ns"] = rows[place]["t_ns"] - MS // 2
        rows[place : place + there] = more.rows
        columns = columns_of(rows)
        assert judged(columns) == {name: [] for name in OWN}, there
        assert Tally(0, "stored", 10) in list(find(segment_of(columns)))
        stores = [one for one in find(segment_of(columns)) if isinstance(one, Latency) and one.measure == "store"]
        assert stores[2].value_ns == 2 * MS - there * MS // 2


def test_an_owner_that_has_yielded_has_no_session_to_lose():
    rows, more = told(), Story()
    more.row("b~1", "fault", "kill")
    before(rows, more.rows, instance=THIRD, event="takeover_begun")
    found = list(find(segment_of(columns_of(rows))))
    assert sum(isinstance(one, Latency) and one.measure == "fail_over" for one in found) == 1


def test_an_owner_that_has_stopped_and_one_whose_node_died_amid_its_resume_are_not_resuming():
    rows, more = told(), Story()
    more.load(THIRD.replace("/1", "/9"), 1)
    more.resume(THIRD.replace("/1", "/9"), "resume_timeout", "loading", "stopped")
    more.load("c~1/1", 1)
    more.row("c~1", "fault", "crash")
    before(rows, more.rows, event="hand", key="q0")
    found = [one for one in find(segment_of(columns_of(rows))) if isinstance(one, Latency) and one.measure == "store"]
    assert [one.cause for one in found].count("calm") == 2


def test_a_commit_of_acknowledgements_has_no_answer_and_is_none_of_an_owner_that_yields():
    rows, more = told(), Story()
    more.ask_commit(f"{SECOND}/acknowledged", 2)
    before(rows, more.rows, instance=THIRD, event="load_session")
    assert judged(columns_of(rows)) == {name: [] for name in OWN}


def test_a_session_dies_with_the_node_of_its_owner_and_once():
    rows, elsewhere, again = told(), Story(), Story()
    elsewhere.row("w~1", "fault", "kill")
    again.row("a~2", "fault", "crash")
    before(rows, elsewhere.rows, kind="fault")
    before(rows, again.rows, event="hand", key="m7")
    (one,) = (one for one in find(segment_of(columns_of(rows))) if getattr(one, "measure", "") == "fail_over")
    (same,) = (one for one in find(segment_of(columns_of(told()))) if getattr(one, "measure", "") == "fail_over")
    assert one == same


def test_what_is_handed_to_a_writer_before_it_begins_is_measured():
    rows = told()
    hand = rows.pop(of(rows, event="hand", key="m1")[0])
    before(rows, [hand], event="begin_epoch")
    found = [one for one in find(segment_of(columns_of(rows))) if getattr(one, "measure", "") == "store"]
    assert len(found) == 10


def test_what_was_stored_before_the_state_is_loaded_is_to_be_taken():
    rows = told()
    place = of(rows, event="hand", key="m7")[0]
    stored, rows[place : place + 3] = rows[place : place + 3], []
    before(rows, stored, event="load_session", instance=SECOND)
    assert judged(columns_of(rows)) == {name: [] for name in OWN}
    keep_until_the_end(event="take", first=7)(rows)
    words = f"{SECOND} is in normal operation without 1/7"
    assert any(words in one for one in judged(columns_of(rows))["gap"])


def test_a_marker_that_is_refused_takes_nothing_back():
    rows, more = told(), Story()
    more.write("row_fenced", "marking", "marking", term=3)
    assert judged(columns_of(rows + more.rows)) == {name: [] for name in OWN}


def test_an_answer_that_nobody_waits_for_begins_no_takeover():
    rows, more = told(), Story()
    more.resume(THIRD, "takeover_begun", "taking", "taking")
    more.send(SECOND, "m9", 8, again=1)
    before(rows, more.rows, instance=SECOND, event="begin_takeover")
    assert judged(columns_of(rows)) == {name: [] for name in OWN}


@pytest.mark.parametrize(("below", "is_held"), [(1, True), (0, False)])
def test_a_fence_below_an_older_epoch_is_answered_as_it_was_asked(below, is_held):
    """What is wanted is all rows of the epochs below; a later epoch is known already, and stays."""
    rows, more = told(), Story()
    more.row(SECOND, "ask", "fence", key="w", term=below)
    more.flow(SECOND, "fenced_rows", "fencing", "waiting", key="w", term=1)
    before(rows, more.rows, event="live_marker", instance=f"{SECOND}:w")
    assert (judged(columns_of(rows))["epochs"] == []) is is_held


def raised_unheard(rows):
    """The writer is not refused, and goes on under the epoch of before."""
    drop(event="row_fenced")(rows)
    change({"term": 1, "first": 9, "last": 9}, event="put_rows", term=2, first=1)(rows)


def begin_under_a_raised_epoch(rows):
    """Only the writer's log tells of the epoch."""
    drop(event="fenced_rows")(rows)
    more = Story()
    more.begin_epoch(2)
    rows += more.rows


@pytest.mark.parametrize(
    ("tamper", "words"),
    [(raised_unheard, "stored 1/9 after epoch 2"), (begin_under_a_raised_epoch, "begins with epoch 2, but 2 was")],
)
def test_whoever_hears_of_an_epoch_makes_it_known(tamper, words):
    rows = told()
    tamper(rows)
    assert any(words in one for one in judged(columns_of(rows))["epochs"])


AGED = {
    "nothing": (lambda rows: None, {}),
    "sent though it was over": (
        change({"event": "publish", "kind": "send", "grant": 0, "first": 9}, key="m1", event="message_expired"),
        {"aged": "m1 is sent by a~1/1 as new at 50, and was over at 50"},
    ),
    "passed over too early": (
        change({"last": 49}, key="m1", event="message_expired"),
        {"aged": "1/1 is passed over by a~1/1 at 49, and is over at 50"},
    ),
    "passed over though it does not expire": (
        change({"event": "message_expired", "kind": "tell", "grant": 1, "last": 50}, key="m4", event="publish"),
        {"aged": "1/4 is passed over by a~1/1 at 50, and is over at no time"},
    ),
    "lost, and nobody says that it was over": (
        drop(key="m1", event="message_expired"), {"gap": "1/1 (m1) was taken and never sent"},
    ),
    "not over when the next owner loads": (
        change({"first": 59}, event="session_loaded", at=1), {"gap": "1/5 (m5) was taken and never sent"},
    ),
    "passed over twice": (
        copy_behind({"key": "m1", "event": "message_expired"}, key="m1", event="message_expired"),
        {"aged": "m1 is passed over by a~1/1, and was sent before"},
    ),
    "passed over, and sent then": (
        copy_behind({"key": "m4", "event": "publish"}, {"key": "m1", "first": 7}, key="m4", event="publish"),
        {"twice": "m1 is sent by a~1/1 as new, and was sent before"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tamper", "wrong"), AGED.values(), ids=AGED)
def test_AGED_what_expires_by_its_time_is_told_from_what_is_lost(tamper, wrong):
    rows = told_of_age()
    tamper(rows)
    found = {name: said for name, said in judged(columns_of(rows)).items() if said}
    assert found.keys() == wrong.keys()
    assert all(words in found[name][0] for name, words in wrong.items()), found
    if not wrong:
        sums = {one.name: one.value for one in find(segment_of(columns_of(rows))) if isinstance(one, Tally)}
        assert (sums["expired"], sums["sent_new"]) == (2, 3)


MOVED = {
    "nothing": (lambda rows: None, ""),
    "overtakes what its publisher had heard of": (
        swap(SENT | {"key": "m2"}, SENT | {"key": "m3"}), "w: m3 is sent by a~1/1 before 1/2 (m2)",
    ),
    "comes first": (keep_until_the_end(**SENT, key="m1"), "w: 1/1 is sent by a~1/1 behind 1/2"),
    "overtakes all": (swap(SENT | {"key": "m1"}, SENT | {"key": "m3"}), "w: m3 is sent by a~1/1 before 1/1 (m1)"),
}  # fmt: skip
"""What becomes of a message of a publisher that moved, and what check ORDER says of it."""


@pytest.mark.parametrize(("tamper", "words"), MOVED.values(), ids=MOVED)
def test_ORDER_a_message_behind_which_its_publisher_moved_comes_first(tamper, words):
    rows = told_of_a_move()
    tamper(rows)
    found = judged(columns_of(rows))
    assert [one for one in found.pop("order") if words in one] if words else not found.pop("order")
    assert found == {name: [] for name in found}


@pytest.mark.parametrize("since", [0, 20])
def test_ORDER_what_a_publisher_had_not_heard_of_when_it_moved_may_come_later(since):
    """It came to the other node before m2 was stored, or nobody knows when."""
    rows = told_of_a_move()
    change({"first": since}, event="hand", key="m3")(rows)
    swap(SENT | {"key": "m2"}, SENT | {"key": "m3"})(rows)
    assert judged(columns_of(rows)) == {name: [] for name in OWN}


def test_rows_of_a_trace_say_what_is_followed():
    """What the checks read is in the rows that nodes write."""

    def said(event, wanted):
        row = event_row(0, "n", "n~1/1", "ask", event)
        return [row[COLUMNS.index(name) - 2] for name in wanted]

    rows = (Queued(4, ""), Queued(5, "m5"), Queued(6, ""))
    assert said(Taken("w", 2, rows), ("key", "term", "grant", "first", "last")) == ["w", 2, 2, 4, 6]
    put = PutRows("s", "w", 2, (Queued(5, "m5"), Queued(6, "m6")))
    assert said(put, ("key", "term", "first", "last")) == ["m5", 2, 5, 6]
    assert said(Hand("m5", "f", 2, 70), ("key", "grant", "last")) == ["m5", 2, 70]
    assert said(MessageExpired("m5", "f", 2, 70, 80), ("key", "grant", "last")) == ["m5", 2, 80]
    assert said(StateCommitted(80), ("first",)) == said(SessionLoaded("s", SessionState(), 80), ("first",)) == [80]
    assert [said(RowRead(found), ("first",)) for found in (True, False)] == [[1], [0]]
    assert said(BeginEpoch("s", "w"), ("key",)) == ["s"]
    assert said(LiveKnown("o", 3), ("key", "term")) == ["o", 3]
    assert said(Publish(7, "m5", "f", 1, True), ("key", "grant", "first")) == ["m5", 1, 7]
    assert said(TakenOver("s", "o", "silent"), ("key",)) == ["silent"]


def test_another_run_knows_nothing_of_the_one_before():
    rows = told()
    again = [dict(row) | {"run": 1} for row in rows]
    columns = columns_of(rows + again)
    assert judged(columns) == {name: [] for name in OWN}
    found = list(find(segment_of(columns)))
    assert [one.value for one in found if isinstance(one, Tally) and one.name == "sent_new"] == [9, 9]


def test_a_story_whose_first_part_is_all_there_is_holds():
    """Whatever is under way when a log ends is no violation."""
    rows = told()
    for end in range(1, len(rows)):
        assert {name for name, wrong in judged(columns_of(rows[:end])).items() if wrong} == set(), end


# -- a real run -----------------------------------------------------------------------------------------------------


async def play(folder):
    """Two nodes: messages while nobody is there, a resume amid publishing, a takeover, a node that dies."""
    times = Times(marker_ms=400, repeat_ms=100)
    quick = {"lease_ms": 1_000, "look_ms": 100, "times": times, "trace": folder / "logs"}
    got = []

    async def take(session, last):
        async for message in session:
            got.append(message.payload.decode())
            message.acknowledge()
            if message.payload == last:
                return

    async with AsyncExitStack() as stack:
        places = [("127.0.0.1", free_port()) for _ in range(2)]
        a = SessionNode(folder / "s.db", name="a", listen=places[0], peers=places[1:], **quick)
        await a.__aenter__()
        b = SessionNode(folder / "s.db", name="b", listen=places[1], peers=places[:1], **quick)
        await stack.enter_async_context(b)
        here, there = ("{}:{}".format(*node.address) for node in (a, b))
        publisher = await stack.enter_async_context(SessionPublisher(nodes=[there]))

        async def publish(first, last):
            for number in range(first, last):
                await publisher.publish("news/1", b"%d" % number, qos=number % 3)

        async with PersistentSession("tablet", nodes=[here]) as session:
            await session.subscribe("news/+")
            await publish(0, 30)
            await take(session, b"29")
        await publish(30, 60)
        amid = asyncio.ensure_future(publish(60, 200))
        first = PersistentSession("tablet", nodes=[here], receive_maximum=10)
        await stack.enter_async_context(first)
        reading = asyncio.ensure_future(take(first, b"199"))
        await amid
        await reading
        await publish(200, 230)
        second = await stack.enter_async_context(PersistentSession("tablet", nodes=[there]))
        await take(second, b"229")
        await publish(230, 240)
        await take(second, b"239")
        third = await stack.enter_async_context(PersistentSession("tablet", nodes=[here, there]))
        await publish(240, 250)
        await a.abort()
        await publish(250, 300)
        await take(third, b"299")
    return got


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The logs of a run, merged into a trace."""
    folder = tmp_path_factory.mktemp("sessions")

    async def bounded():
        async with asyncio.timeout(60):
            return await play(folder)

    got = asyncio.run(bounded())
    assert {int(one) for one in got} >= {number for number in range(300) if number % 3}
    merge_logs(folder / "logs", folder / "trace")
    return folder


def columns_in(folder):
    (columns,) = read_columns(folder / "trace" / "trace-real.parquet")
    return columns


def test_a_real_run_holds(real):
    columns = columns_in(real)
    assert judged(columns) == {name: [] for name in OWN}
    segment = segment_of(columns)
    assert list(absent(segment)) == []
    found = list(find(segment))
    assert sum(one.value for one in found if isinstance(one, Tally) and one.name == "stored") == 300
    assert sum(one.pending > 0 for one in found if isinstance(one, Resume)) >= 2
    assert Takeover(0, "handed") in found
    rows = sum(len(check.judge(segment).run) for name, _, check in JUDGES.checks if name in ("rows", "continuity"))
    assert rows == 0


@pytest.mark.parametrize(
    ("tamper", "check"),
    [
        (lambda rows: rows.pop(of(rows, kind="ask", event="mark_delivered")[5]), "owner"),
        (drop(kind="send", event="publish", first=20), "gap"),
        (lambda rows: rows.pop(of(rows, event="take")[5]), "gap"),
        (change({"event": "live"}, at=40, event="row_stored"), "epochs"),
    ],
)
def test_a_real_run_that_was_tampered_with_does_not_hold(real, tamper, check):
    rows = pq.read_table(real / "trace" / "trace-real.parquet").to_pylist()
    tamper(rows)
    assert judged(columns_of(rows))[check]


def test_a_real_run_without_the_log_of_a_node_is_not_judged_by_what_needs_it(real, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for path in (real / "logs").glob("b~*"):
        (logs / path.name).write_bytes(path.read_bytes())
    analysis = analyze(logs, tmp_path / "out", spark=False)
    said = {one.name: one.verdict for one in analysis.checks}
    assert said["cut"] == "held"
    assert {said[name] for name in OWN if name != "cut"} == {"not judged: no log of a"}


def test_the_page_shows_resumes_stores_and_takeovers(real, tmp_path):
    analysis = analyze(real / "logs", tmp_path / "out", spark=False)
    assert analysis.is_held
    page = tmp_path / "index.html"
    write_page(page, "Sessions", "A run.", [part_of("A run", analysis)])
    html = page.read_text(encoding="utf-8")
    for words in ("How long a resume takes", "How long a message takes to be stored", "the owner of before handed"):
        assert words in html
    summary = json.loads((tmp_path / "out" / "summary.json").read_bytes())
    assert sum(one["resumes"] for one in summary["resumes"]) >= 4
    assert {one["cause"] for one in summary["stores"]} == {"calm", "resumes"}


@pytest.mark.long
def test_answers_that_come_at_one_instant_are_no_repetition(tmp_path):
    campaign(find_scenario(f"{PS}/dying_clients"), range(40917, 40918), out=tmp_path, processes=1)
    (columns,) = read_columns(next(tmp_path.glob("trace-*.parquet")))
    turns = next(check for name, _, check in JUDGES.checks if name == "turns").judge(segment_of(columns))
    assert (turns.checked > 20_000, len(turns.run)) == (True, 0)


@pytest.mark.parametrize("name", ["deaths_of_nodes", "stale_replicas", "aging_messages"])
def test_a_simulated_run_holds_and_all_of_it_is_looked_at(tmp_path, name):
    scenario = find_scenario(f"{PS}/{name}")
    if name == "aging_messages":
        scenario = replace(scenario, phases=replace(scenario.phases, safety_s=8.0))
    (outcome,) = campaign(scenario, range(1), out=tmp_path, processes=1)
    assert outcome.is_held
    (path,) = tmp_path.glob("trace-*.parquet")
    (columns,) = read_columns(path)
    segment = segment_of(columns)
    verdicts = {name: check.judge(segment) for name, _, check in JUDGES.checks if name in OWN}
    assert {name: len(one.run) for name, one in verdicts.items()} == dict.fromkeys(OWN, 0)
    idle = {check for check, one in verdicts.items() if not one.checked}
    assert idle == (set() if name == "aging_messages" else {"aged"}), "each of them has found something to look at"
    assert list(absent(segment)) == []
    sums = {one.name: one.value for one in find(segment) if isinstance(one, Tally)}
    assert COPIES_MAX * sums["taken"] >= sums["sent_new"], "a message of a row is sent anew once for each filter"
    assert sums["sent_new"] >= outcome.tally["delivered"] > 0, "what a death has cut off came again"
