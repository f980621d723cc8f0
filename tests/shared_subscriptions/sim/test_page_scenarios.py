"""The scenarios of the protocol page that one leader host and one borrower a filter can play, by their numbers."""

from __future__ import annotations

import pytest
from group_play import Group
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import node_of
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines_sim.scenario import Phases, find_scenario
from statemachines_sim.shared_subscriptions import SIM
from statemachines_sim.world import World

TOPICS = ("a", "b", "c", "d")


def publish_all(group, count, over_s=0.0):
    for topic in TOPICS:
        group.publish(topic, count, over_s)


def test_01_the_first_lease_and_a_topic_that_appears_later():
    group = Group("consumer-1")
    group.publish("a", 20)
    group.run(5)
    assert {one.stream for one in group.got()} == {"0.0/a"}
    group.publish("b", 20)
    group.run(5)
    assert group.acknowledged == 40
    group.settle()


def test_04_two_members_get_everything_at_least_once():
    group = Group("consumer-1", "consumer-2")
    publish_all(group, 100, over_s=10)
    group.run(10)
    group.settle()
    assert group.acknowledged == group.published == 400
    assert {one.node for one in group.got()} == {"consumer-1", "consumer-2"}
    assert set(group.times_got().values()) == {1}  # nobody failed: exactly once


def test_06_a_member_is_killed_and_the_others_take_over():
    group = Group("consumer-1", "consumer-2", "consumer-3")
    publish_all(group, 300, over_s=30)
    group.run(10)
    group.kill("consumer-1")
    group.run(20)
    group.settle()
    assert group.acknowledged == 1_200
    assert group.shares() == {"consumer-2": 2, "consumer-3": 2}
    lost = {key for key, times in group.times_got().items() if times > 1}
    assert len(lost) <= 2 * 4 + 40  # what it had in hand, and what it had not reported in time


def test_07_who_joins_gets_a_share_and_each_stream_has_one_owner():
    group = Group("consumer-1")
    publish_all(group, 300, over_s=30)
    group.run(8)
    assert group.shares() == {"consumer-1": 4}
    group.join("consumer-2")
    group.until(lambda: group.shares() == {"consumer-1": 2, "consumer-2": 2}, within_s=5)
    moved = {stream for stream, name in group.served_by().items() if name == "consumer-2"}
    since = group.now_s
    group.run(15)
    group.settle()
    assert {one.stream for one in group.got("consumer-2")} == moved
    assert moved.isdisjoint(one.stream for one in group.got("consumer-1", since))
    assert set(group.times_got().values()) == {1}


def test_08_a_leave_is_faster_than_an_expiry():
    def take_over(end):
        group = Group("consumer-1", "consumer-2")
        publish_all(group, 600, over_s=60)
        group.run(10)
        end(group)
        return group.until(lambda: set(group.served_by().values()) == {"consumer-2"}, within_s=20)

    left, died = take_over(lambda group: group.leave("consumer-1")), take_over(lambda group: group.kill("consumer-1"))
    assert left < 1.5
    assert died >= 4.0  # its validity, since it was heard last
    assert left < died


def test_09_all_leave_and_who_comes_later_goes_on_from_the_checkpoint():
    group = Group("consumer-1", "consumer-2")
    publish_all(group, 50)
    group.run(10)
    group.settle()
    for name in ("consumer-1", "consumer-2"):
        group.leave(name)
    group.until(lambda: group.leader is None, within_s=40)  # the idle leader has committed and let go
    assert group.durable == {"0.0/a": 50, "1.0/b": 50, "2.0/c": 50, "3.0/d": 50}
    group.kill("leader-1")
    group.restart("leader-1")
    publish_all(group, 10)
    since = group.now_s
    group.join("consumer-3")
    first = group.until(lambda: len(group.got(since_s=since)) > 0, within_s=5)
    assert first < 2.5  # released clean: nobody waits for old leases
    group.run(5)
    group.settle()
    assert group.acknowledged == 240
    assert set(group.times_got().values()) == {1}


def test_10_streams_go_round_while_20000_messages_pass_and_none_is_missing_or_doubled():
    group = Group("consumer-1", take=50, work_ms=(5, 20))
    for topic in "abcdefghij":
        group.publish(topic, 2_000, over_s=20, batch=50)
    for number in range(2, 7):
        group.run(3)
        group.join(f"consumer-{number}")
    group.run(6)
    group.settle()
    assert sorted(group.shares().values()) == [1, 1, 2, 2, 2, 2]
    times = group.times_got()
    assert len(times) == group.acknowledged == 20_000
    assert set(times.values()) == {1}


@pytest.mark.long
def test_11_fifty_groups_of_twenty_and_no_message_leaves_its_group():
    group = Group(work_ms=(1, 5))
    world = group.world
    for number in range(50):
        subscription = f"$shared/group{number:02}/group{number:02}/#"
        _, consumer = SIM.cast(replace(world.scenario.own, subscription=subscription))
        for member in range(20):
            world.add(f"consumer-{number:02}-{member:02}", consumer)
    for number in range(50):
        for topic in range(4):
            group.publish(f"group{number:02}/t{topic}", 5)
    group.until(lambda: group.published == 1_000 == group.acknowledged, within_s=10)
    assert len(world.processes["leader-1"].host.leaders) == 50
    for one in group.got():
        _, number, _ = one.node.split("-")
        assert one.stream.partition("/")[2].startswith(f"group{number}/")
    assert set(group.times_got().values()) == {1}


def test_12_unsubscribing_under_load_loses_nothing_and_doubles_nothing():
    group = Group("consumer-1", "consumer-2", "consumer-3")
    publish_all(group, 300, over_s=20)
    group.run(8)
    group.leave("consumer-1")
    group.until(lambda: group.process("consumer-1").host.is_ended, within_s=5)
    since = group.now_s
    group.run(12)
    group.settle()
    assert not group.got("consumer-1", since)
    assert group.acknowledged == 1_200
    assert set(group.times_got().values()) == {1}  # it finished what it had in hand


def test_14_who_is_disconnected_under_load_leaves_only_what_it_had_not_acknowledged():
    group = Group("consumer-1", "consumer-2", work_ms=(200, 400))
    publish_all(group, 60, over_s=10)
    group.run(6)
    group.disconnect("consumer-1")
    done = group.acknowledged_by("consumer-1")
    group.run(10)
    group.settle()
    again = {key for key, times in group.times_got().items() if times > 1}
    assert 1 <= len(again) <= 4  # the batch in hand
    assert again.isdisjoint(done)
    assert group.acknowledged == 240


def test_15_what_lies_above_the_first_gap_is_delivered_again_as_a_whole():
    group = Group("consumer-1")
    group.run(3)
    group.stop_working("consumer-1")
    group.publish("a", 4)
    group.run(3)
    (batch,) = group.got()
    assert (batch.first, batch.last) == (0, 3)
    group.acknowledge(batch, 0, 0)
    group.acknowledge(batch, 2, 2)
    group.disconnect("consumer-1")
    group.join("consumer-2")
    group.run(5)
    group.settle()
    assert [(one.first, one.last) for one in group.got("consumer-2")] == [(1, 3)]


def test_16_without_the_group_store_borrowers_ask_again_until_it_is_back():
    group = Group()
    store = group.world.devices["group_store"]
    store.crash()
    group.join("consumer-1")
    publish_all(group, 20)
    group.run(8)
    assert not group.got()
    asked = sum(row[4] == "ask" and row[5] == "read" for row in group.world.rows)
    assert 15 <= asked <= 17  # to subscribe is to declare the group first; twice a second
    store.restart()
    group.run(5)
    group.settle()
    assert group.acknowledged == 80

    store.crash()  # and in the midst of it: the leader holds its claim for a while, then gives it up
    publish_all(group, 20)
    group.run(20)
    assert group.leader is None
    store.restart()
    group.run(20)
    group.settle()
    assert group.acknowledged == 160


def test_17_the_leader_is_killed_and_a_new_one_goes_on_from_the_last_commit():
    group = Group("consumer-1", "consumer-2")
    publish_all(group, 300, over_s=30)
    group.run(10)
    before = {group.process(name).host.borrower for name in ("consumer-1", "consumer-2")}
    old, epoch = group.leader.id, group.leader.epoch
    group.kill("leader-1")
    durable = dict(group.durable)
    assert min(durable.values()) > 0
    group.restart("leader-1")
    group.until(lambda: group.leader is not None, within_s=25)
    assert (group.leader.id, group.leader.epoch) != (old, epoch)
    assert group.leader.epoch == epoch + 1
    since = group.now_s
    group.run(10)
    group.settle()
    assert before.isdisjoint(group.process(name).host.borrower for name in ("consumer-1", "consumer-2"))
    first = {one.stream: one.first for one in reversed(group.got(since_s=since))}
    assert all(first[stream] >= progress for stream, progress in durable.items())
    assert group.acknowledged == 1_200


def test_18_the_leader_lives_on_another_node_than_the_borrowers():
    group = Group("consumer-1", "consumer-2")
    publish_all(group, 50)
    group.run(8)
    group.settle()
    assert group.acknowledged == 200
    sent = [row for row in group.world.rows if row[4] == "send"]
    assert sent
    assert all(row[1] != node_of(row[9]) for row in sent)
    assert node_of(group.leader.id) == "leader-1"


@pytest.mark.parametrize(
    ("streams", "members", "shares"),
    [
        (7, 1, [7]),
        (7, 3, [3, 2, 2]),
        (7, 4, [2, 2, 2, 1]),
        (7, 8, [1, 1, 1, 1, 1, 1, 1, 0]),
        (0, 3, [0, 0, 0]),
    ],
)
def test_29_the_shares_of_so_many_streams_for_so_many_members(streams, members, shares):
    group = Group(*(f"consumer-{number + 1}" for number in range(members)))
    for number in range(streams):
        group.publish(f"t{number}", 1)
    group.run(6)
    group.settle()
    assert list(group.shares().values()) == shares


def test_31_fire_and_forget_what_was_handed_over_counts_as_done():
    group = Group("consumer-1", "consumer-2", work_ms=(0, 0))
    publish_all(group, 200, over_s=20)
    group.run(10)
    group.run(2 * Configuration().ping_interval_ms / 1_000)
    group.kill("consumer-1")
    handed = {(one.stream, offset) for one in group.got("consumer-1") for offset in range(one.first, one.last + 1)}
    assert group.acknowledged_by("consumer-1") == handed
    group.run(12)
    group.settle()
    assert group.acknowledged == 800
    assert set(group.times_got().values()) == {1}  # what it had was reported as it was handed over


def test_32_a_client_that_never_acknowledges_can_leave_all_the_same():
    group = Group("consumer-1", "consumer-2")
    group.run(3)
    group.stop_working("consumer-1")
    publish_all(group, 20)
    group.run(4)
    held = group.got("consumer-1")
    assert held
    group.leave("consumer-1")
    took = group.until(lambda: group.process("consumer-1").host.is_ended, within_s=8)
    assert took == pytest.approx(Configuration().unsubscribe_timeout_ms / 1_000, abs=0.1)
    group.run(5)
    group.settle()
    assert group.acknowledged == 80
    again = {key for key, times in group.times_got().items() if times == 2}
    assert again == {(one.stream, offset) for one in held for offset in range(one.first, one.last + 1)}


@pytest.mark.long
@pytest.mark.parametrize("seed", mark_long(range(3), "1", "2"))
def test_35_a_long_mix_of_everything(seed):
    swarm = find_scenario("swarm")
    assert swarm.swarm is not None
    everything = replace(swarm, swarm=replace(swarm.swarm, share=1.0), phases=Phases(safety_s=120.0, liveness_s=240.0))
    outcome = World(everything, seed).run()
    assert outcome.is_held, outcome
    assert len(outcome.faults) >= 16
