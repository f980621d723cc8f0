"""Members of `$share` that nobody here wrote: their node is killed, and each message comes to one of them."""

from __future__ import annotations

import pytest
from mqtt_judge import SPREAD, MemberReceipt, judge_shared
from run import run_seed

from statemachines.testing.postgres import PostgresServer


def check(folder, store, seed, faults, **given):
    done, said, wrong = run_seed("shared", folder, store, seed, faults, **given)
    assert wrong == []
    assert done["kill"] == faults
    assert said["messages"] > 20
    assert sum(one > 0 for one in said["by member"]) > 1, said
    assert all("Traceback" not in one.read_text() for one in folder.glob("*.log"))


def test_MQ_100_MQ_102_members_share_topics_and_their_node_is_killed(tmp_path):
    check(tmp_path, str(tmp_path / "s.db"), seed=5, faults=1, moves_publisher=False)


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("version", [5, 3])
def test_MQ_100_MQ_102_nodes_are_killed_again_and_again(tmp_path, database, version):
    given = {"seed": 8, "faults": 10, "moves_publisher": True, "version": version}
    if database == "sqlite":
        check(tmp_path, str(tmp_path / "s.db"), **given)
        return
    with PostgresServer() as server:
        check(tmp_path, server.database("shared"), **given)


def test_the_judge_sees_what_is_missing_moved_doubled_and_given_to_two():
    one, two, three = (MemberReceipt(0, SPREAD + number, number, False) for number in (1, 2, 3))
    wanted = {SPREAD + number for number in (1, 2, 3)}
    assert judge_shared(wanted, [one, two, three], set()) == []
    assert judge_shared(wanted, [one, two, two._replace(dup=True), three], set()) == []
    assert judge_shared(wanted, [one, two._replace(member=1), three], set()) == []
    assert judge_shared(wanted, [one, two, two._replace(member=1), three], {two.number}) == []
    assert "missing" in judge_shared(wanted, [one, three], set())[0]
    assert "behind" in judge_shared(wanted, [one, three, two], set())[0]
    assert "twice" in judge_shared(wanted, [one, two, two, three], set())[0]
    assert "several" in judge_shared(wanted, [one, two, two._replace(member=1), three], set())[0]
