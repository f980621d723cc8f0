"""The scenarios of the protocol page about declaring, electing and generations, by their numbers."""

import pytest
from group_play import Group

from statemachines.shared_subscriptions.group import GroupDestroyed
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines_sim.shared_subscriptions.watch import list_leaders

TOPICS = ("a", "b", "c", "d")


def publish_all(group, count, over_s=0.0):
    for topic in TOPICS:
        group.publish(topic, count, over_s)


def test_02_a_group_declared_with_start_0_gets_everything_stored():
    group = Group()
    publish_all(group, 50)
    group.run(5)
    group.join("consumer-1")
    group.settle()
    assert group.acknowledged == group.published == 200


def test_03_the_first_subscribe_declares_from_now_on():
    group = Group(start="now")
    group.store_before("a", 30)
    group.run(5)
    group.join("consumer-1")
    group.run(3)
    group.publish("a", 20)
    group.run(1)
    group.join("consumer-2")
    group.settle()
    assert {one.stream for one in group.got()} == {"0.0/a"}
    assert min(one.first for one in group.got()) == 30, "what was stored before is no business of the group's"
    assert group.published == 50
    assert group.acknowledged == 50


def test_05_what_is_published_to_a_destroyed_group_is_not_delivered_until_a_new_subscribe():
    group = Group("consumer-1", "consumer-2", start="now")
    group.run(3)
    publish_all(group, 20)
    group.run(5)
    assert group.acknowledged == 80
    destroyer = group.destroy()
    took = group.until(lambda: any(isinstance(one, GroupDestroyed) for one in destroyer.heard), within_s=20)
    assert took < 5 + 3.1 + 2, "a heartbeat until the leader notices, a lease, and the looks in between"
    for topic in TOPICS:
        group.store_before(topic, 10)
    since = group.now_s
    group.run(30)
    assert group.got(since_s=since) == []
    assert group.leader is None
    assert group.durable == {}
    group.join("consumer-3")
    group.run(5)
    publish_all(group, 5)
    group.run(1)
    group.settle()
    assert len(group.got(since_s=since)) > 0
    assert group.acknowledged == group.published == 4 * (20 + 10 + 5)


def elections(group):
    """(leader, epoch) of every claim that was taken."""
    rows = [
        row for row in group.world.rows if row[2].endswith("/leader") and row[6] == "candidate" and row[7] == "loading"
    ]
    return [row[3] for row in rows]


@pytest.mark.long
def test_19_three_hosts_two_race_the_leader_is_killed_and_there_is_one_election():
    group = Group("consumer-1", "consumer-2", "consumer-3", leaders=3)
    publish_all(group, 400, over_s=45)
    group.run(5)
    assert len(elections(group)) == 1
    assert len(list_leaders(group.world.processes)) == 1
    followers = [
        node.name
        for name in ("leader-1", "leader-2", "leader-3")
        for node in group.process(name).host.nodes.values()
        if node.record.status.value == "follower"
    ]
    assert len(followers) == 2
    first = elections(group)[0].partition("~")[0]
    group.kill(first)
    took = group.until(lambda: group.leader is not None, within_s=25)
    assert took > 2, "the claim of the dead holds for its time"
    assert len(elections(group)) == 2
    group.run(20)
    group.restart(first)
    group.run(20)
    assert len(elections(group)) == 2, "who comes back follows"
    group.settle()
    assert group.acknowledged == 1_600


def test_25_a_vanished_stream_is_taken_back_and_the_next_generation_goes_on():
    group = Group("consumer-1", "consumer-2")
    publish_all(group, 200, over_s=10)
    group.run(12)
    group.stop_working("consumer-1")
    group.run(3)
    group.publisher.rotate()
    publish_all(group, 50)
    group.run(3)
    group.publisher.drop()
    group.run(5)
    assert all(".1/" in stream for stream in group.served_by())
    assert all(".1/" in stream or progress == END_OF_STREAM for stream, progress in group.durable.items())


def test_30_the_store_rotates_while_the_group_reads():
    group = Group("consumer-1", "consumer-2")
    publish_all(group, 300, over_s=15)
    group.run(4)
    group.publisher.rotate()
    group.run(5)
    group.publisher.rotate()
    group.run(15)
    group.settle()
    assert group.acknowledged == group.published == 1_200
    assert {one.stream.partition("/")[0].partition(".")[2] for one in group.got()} == {"0", "1", "2"}
    assert set(group.times_got().values()) == {1}


def test_34_an_idle_leader_stops_and_who_comes_back_goes_on():
    group = Group("consumer-1")
    publish_all(group, 20)
    group.run(5)
    group.leave("consumer-1")
    group.run(10)
    assert group.leader is not None
    group.run(30)
    assert group.process("leader-1").host.nodes == {}, "nobody was there for idle_stop"
    publish_all(group, 20)
    group.run(1)
    group.join("consumer-2")
    group.settle()
    assert group.acknowledged == 160
    assert set(group.times_got().values()) == {1}
