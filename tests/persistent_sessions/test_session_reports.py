"""Traces of sessions: a real run and a story hold, each tampering is found by its check, a missing log is named.

Traces of sessions are judged, in `make soak` on Spark, too: a simulated run and a story hold; copies have faults.

An owner that stood still takes or sends what a later owner has committed or sent: that is no repetition.  A message
that is taken, committed or sent a second time otherwise is one.
"""

import asyncio
from contextlib import AsyncExitStack

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long_cases import mark_long
from msgspec.structs import replace
from session_story import FIRST, SECOND, SESSION, THIRD, columns_of, told, told_of_a_move, told_of_age
from waiting import run_async

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
from statemachines.persistent_sessions.writer_flow import Take as Taken
from statemachines.persistent_sessions.writer_record import Hand, LiveKnown
from statemachines.testing.process_harness import free_port
from statemachines.trace import COLUMNS, event_row
from statemachines_reports.columns import NEEDED, Columns, Segment, read_columns
from statemachines_reports.judge import Judges
from statemachines_reports.page import part_of, write_page
from statemachines_reports.persistent_sessions.histories import Histories
from statemachines_reports.persistent_sessions.report import find
from statemachines_reports.pipeline import VIOLATED, analyze
from statemachines_reports.protocol import Tally
from statemachines_reports.trace_set import merge_logs
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import Phases, find_scenario

PS = "persistent_sessions"
JUDGES = Judges([registry.protocol(PS)])
OWN = ("gap", "twice", "order", "cut", "owner", "aged", "epochs")


def segment_of(columns):
    return Segment(columns, JUDGES.lookup, lambda run: {})


def judged(columns):
    """Check -> what is wrong, in words."""
    segment = segment_of(columns)
    verdicts = {name: check.judge(segment) for name, _, check in JUDGES.checks if name in OWN}
    return {name: [one.describe(place) for place in range(len(one.run))] for name, one in verdicts.items()}


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


def before(rows, more, **wanted):
    """More rows, before the first with those values."""
    place = of(rows, **wanted)[0]
    rows[place:place] = more


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

    got = run_async(play(folder))
    assert {int(one) for one in got} >= {number for number in range(300) if number % 3}
    merge_logs(folder / "logs", folder / "trace")
    return folder


@pytest.mark.long
def test_answers_that_come_at_one_instant_are_no_repetition(tmp_path):
    campaign(find_scenario(f"{PS}/dying_clients"), range(40917, 40918), out=tmp_path, processes=1)
    (columns,) = read_columns(next(tmp_path.glob("trace-*.parquet")))
    turns = next(check for name, _, check in JUDGES.checks if name == "turns").judge(segment_of(columns))
    assert (turns.checked > 20_000, len(turns.run)) == (True, 0)


SIMULATED, GOOD = 0, 100
"""Runs in which nothing is wrong."""

PLANTED = {
    "a row that nobody takes": "gap",
    "an owner leaves out a row": "gap",
    "what is taken and not sent": "gap",
    "what is committed is taken again": "twice",
    "what was sent is sent as new": "twice",
    "a repetition under another packet": "twice",
    "two change places": "order",
    "two epochs change places": "order",
    "overtakes what its publisher had heard of": "order",
    "from the marker on from the database": "cut",
    "not all below the marker": "cut",
    "what was kept is forgotten": "cut",
    "who has yielded sends": "owner",
    "stored under an epoch that was raised": "epochs",
    "sent though it was over": "aged",
    "passed over too early": "aged",
}
"""What is planted (`test_session_reports.TAMPERED`, `MOVED` or `AGED`), and the check that finds it."""

RUNS = {what: GOOD + place for place, what in enumerate(PLANTED, 1)}


def story_of(run, what=""):
    """The rows of this run, with that planted in them ("": nothing)."""
    rows = (told_of_age if what in AGED else told_of_a_move if what in MOVED else told)()
    if what:
        tamper = TAMPERED[what][1] if what in TAMPERED else (AGED | MOVED)[what][0]
        tamper(rows)
    return [row | {"run": run, "seq": seq} for seq, row in enumerate(rows)]


def write_stories(folder):
    """The story, and one with each fault, beside a simulated run: as runs of the same kind."""
    (trace,), (runs,) = folder.glob("trace-*.parquet"), folder.glob("runs-*.parquet")
    stories = story_of(GOOD)
    for what, run in RUNS.items():
        stories += story_of(run, what)
    (simulated,) = pq.read_table(runs).to_pylist()
    table = pa.Table.from_pylist(stories, schema=pq.read_schema(trace))
    pq.write_table(table, folder / "trace-stories.parquet")
    heads = [simulated | {"run": run} for run in (GOOD, *RUNS.values())]
    pq.write_table(pa.Table.from_pylist(heads, schema=pq.read_schema(runs)), folder / "runs-stories.parquet")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """All of them in one folder."""
    folder = tmp_path_factory.mktemp("trace")
    scenario = find_scenario(f"{PS}/deaths_of_nodes")
    (outcome,) = campaign(scenario, range(1), out=folder, processes=1, first_run=SIMULATED)
    assert outcome.is_held
    write_stories(folder)
    return folder


@pytest.fixture(scope="module", params=mark_long(("local", "spark"), "spark"))
def analysis(request, trace, tmp_path_factory):
    """What an engine says of them."""
    return analyze(trace, tmp_path_factory.mktemp("out"), spark=request.param == "spark")


def found(analysis):
    """(check, run) of whatever is wrong, of the checks of sessions."""
    return {(line["check"], line["run"]) for line in analysis.tables["findings"] if line["check"] in OWN}


@pytest.mark.long
def test_each_planted_fault_is_found_in_its_run_by_its_check(analysis):
    assert {(check, RUNS[what]) for what, check in PLANTED.items()} <= found(analysis)
    checks = {one.name: one for one in analysis.checks if one.name in OWN}
    assert {name: one.verdict for name, one in checks.items()} == dict.fromkeys(OWN, VIOLATED)
    assert all(one.checked > one.wrong > 0 for one in checks.values())


@pytest.mark.long
def test_where_nothing_is_planted_nothing_is_found(analysis):
    assert {run for _, run in found(analysis)} == set(RUNS.values())


@pytest.mark.long
def test_without_spark_the_same_is_found(trace, tmp_path):
    plain, on_spark = (analyze(trace, tmp_path / str(spark), spark=spark) for spark in (False, True))
    assert found(plain) == found(on_spark)
    assert [(one.name, one.checked, one.wrong) for one in plain.checks] == [
        (one.name, one.checked, one.wrong) for one in on_spark.checks
    ]


def test_the_page_shows_resumes_and_stores(analysis, tmp_path):
    write_page(tmp_path / "index.html", "Sessions", "Runs.", [part_of("Runs", analysis)])
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "How long a resume takes" in page
    assert "How long a message takes to be stored" in page


def wrong_of(columns):
    """Check and words of all that is wrong."""
    return [(one.check, one.detail) for one in Histories(columns).findings.wrong]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The rows of a run in which nodes stood still while others took their sessions over."""
    folder = tmp_path_factory.mktemp("stopped")
    scenario = replace(find_scenario("persistent_sessions/stopped_nodes"), phases=Phases(5.0, 120.0))
    (outcome,) = campaign(scenario, range(14, 15), out=folder, processes=1)
    assert outcome.is_held
    (path,) = folder.glob("trace-*.parquet")
    return pq.read_table(path, columns=list(NEEDED))


def repeated(table, place, behind):
    """The rows, with the one at `place` once more behind another."""
    return Columns(table.take([*range(behind + 1), place, *range(behind + 1, len(table))]))


def test_a_clean_run_with_stopped_nodes_has_no_repetition(stopped):
    """Superseded owners take in it what later owners have committed."""
    assert wrong_of(Columns(stopped)) == []
