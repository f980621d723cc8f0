"""Sessions whose node is killed or stopped (7 times; 54 more in `make soak`) while publishers go on: every message
arrives once and in order."""

import os

import pytest
from carried_judge import SessionsJudgeGot, count_moves, judge_of_sessions_judge
from run import run_seed
from sessions_workload import EACH

from statemachines.testing.postgres import run_sql


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "faults", "hurt"), [(1, 9, 7), *(pytest.param(seed, 22, 18, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_every_message_arrives_once_and_in_order_whoever_is_killed(tmp_path, seed, faults, hurt):
    done, said, wrong = run_seed("sessions", tmp_path, str(tmp_path / "sessions.db"), seed, faults)
    assert wrong == []
    assert done["kill"] + done["stop"] == hurt, "in the others the store is away"
    assert said["messages"] >= faults * EACH
    assert done["moved"] > 0, "a publisher has moved with what it had heard of"


@pytest.mark.long
def test_every_message_arrives_on_postgres(tmp_path, postgres_server):
    name = f"killed_{os.getpid()}"
    run_sql(postgres_server, f"CREATE DATABASE {name} TEMPLATE template0")
    done, said, wrong = run_seed("sessions", tmp_path, f"{postgres_server.rpartition('/')[0]}/{name}", 3, 20)
    assert wrong == []
    assert done["kill"] + done["stop"] == 18
    assert said["messages"] >= 20 * EACH
    assert done["moved"] > 0


def test_PS_203_of_a_crowd_of_clean_starts_one_is_left_and_each_hears_how_it_ended(tmp_path):
    """`run.py clean_starts --clients 2000` is the whole crowd."""
    _, ended, wrong = run_seed("clean_starts", tmp_path, str(tmp_path / "sessions.db"), 1, 0, clients=200)
    assert wrong == [], "its session is the only one"
    assert ended["stayed"] == 1
    assert ended["superseded"] + ended["superseded before it was connected"] == 199


def test_the_judge_finds_what_is_wrong():
    stored = {("w", number): ["a~1"] for number in (1, 2, 3)}
    answered = dict.fromkeys(stored, 0)
    good = [SessionsJudgeGot(("w", number), number, False) for number in (1, 2, 3)]
    assert judge_of_sessions_judge(stored, answered, good) == []
    assert judge_of_sessions_judge(stored, answered, good[:2]) == ["('w', 3) was answered, and never came"]
    assert judge_of_sessions_judge(stored, answered, [*good, good[2]]) == [
        "('w', 3) came 2 times unmarked, and was stored 1 times"
    ]
    again = SessionsJudgeGot(("w", 3), 3, True)
    assert judge_of_sessions_judge(stored, answered, [*good, again]) == []
    assert judge_of_sessions_judge(stored, answered, [*good, again], exactly=True) == ["('w', 3) came 2 times"]
    other = SessionsJudgeGot(("w", 3), 9, True)
    assert judge_of_sessions_judge(stored, answered, [*good, other]) == [
        "('w', 3) came under packets [3, 9], and was stored 1 times"
    ]
    early = SessionsJudgeGot(("w", 2), 2, False, 9.0)
    assert judge_of_sessions_judge(stored, answered, [good[0], early, good[2]]) == [
        "('w', 2) does not expire, and came with 9.0 s left"
    ]
    turned = [good[0], good[2], good[1]]
    assert judge_of_sessions_judge(stored, answered, turned) == ["('w', 2) came behind 3, over a~1"]


@pytest.mark.parametrize(
    ("heard", "said"),
    [(2, ["('w', 2) was answered before ('w', 3) was sent, and came behind it"]), (1, [])],
    ids=["it had heard of 2", "it had not"],
)
def test_ORDER_the_judge_follows_a_publisher_that_moved(heard, said):
    """3 went over another node, and comes before 2."""
    stored = {("w", 1): ["a~1"], ("w", 2): ["a~1"], ("w", 3): ["b~1"]}
    answered = {("w", 1): 0, ("w", 2): 1, ("w", 3): heard}
    good = [SessionsJudgeGot(("w", number), number, False) for number in (1, 2, 3)]
    assert judge_of_sessions_judge(stored, answered, good) == []
    damaged = [good[0], good[2], good[1]]
    assert judge_of_sessions_judge(stored, answered, damaged) == said
    assert count_moves(stored) == 1


def test_ORDER_what_was_stored_twice_counts_where_it_cannot_be_over():
    """4 expires soon: the copy that was answered may be over, and another one comes late.  3 never expires."""
    for early, said in ((4, []), (3, ["('w', 3) was answered before ('w', 5) was sent, and came behind it"])):
        stored = {("w", early): ["a~1", "b~1"], ("w", 5): ["b~1"]}
        answered = {("w", early): 0, ("w", 5): early}
        got = [
            SessionsJudgeGot(("w", 5), 1, False, 3_599.0),
            SessionsJudgeGot(("w", early), 2, False, 0.04 if early == 4 else None),
        ]
        assert judge_of_sessions_judge(stored, answered, got) == said


def test_AGED_the_judge_tells_what_has_expired_from_what_is_lost():
    stored = {("w", number): ["a~1"] for number in (4, 5)}
    answered = dict.fromkeys(stored, 0)
    late = SessionsJudgeGot(("w", 5), 2, False, 3_599.0)
    assert judge_of_sessions_judge(stored, answered, [late]) == [], "4 expires soon"
    assert judge_of_sessions_judge(stored, answered, [SessionsJudgeGot(("w", 4), 1, False, 0.04)]) == [
        "('w', 5) was answered, and never came"
    ]
    again = [SessionsJudgeGot(("w", 4), 1, False, 0.04), SessionsJudgeGot(("w", 4), 1, True, 0.0)]
    assert judge_of_sessions_judge(stored, answered, [*again, late]) == []
    for wrong in (0.0, 0.06, None):
        (said,) = judge_of_sessions_judge(stored, answered, [SessionsJudgeGot(("w", 4), 1, False, wrong), late])
        assert said == f"('w', 4) expires after 0.05 s, and came with {wrong} s left, dup = False"
