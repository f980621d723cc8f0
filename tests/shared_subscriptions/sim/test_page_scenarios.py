"""The scenarios of the protocol page that one leader host and one borrower a filter can play, by their numbers.

Ways that nothing heals: what the fault `unreachable` does, and what comes true all the same.

A node that does not reach a store which all others reach.

Strangers that speak as leaders in the simulator: nobody follows them, and where one is believed S17 breaks.

Runs in which messages fail: dead letters (S21), and handlers that keep a message for too long.

Messages that kill whoever deals with them: they are set aside, no innocent is, and other streams go on.
"""

import pytest
from group_play import Group
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, node_of
from statemachines.shared_subscriptions import agent_process
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines_sim.fault import Fault
from statemachines_sim.override import override
from statemachines_sim.scenario import Phases, check_scenario, find_scenario
from statemachines_sim.schedule import draw
from statemachines_sim.shared_subscriptions import SIM
from statemachines_sim.units import MS, S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

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


@pytest.mark.long
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


@pytest.mark.long
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
@pytest.mark.parametrize("seed", range(3))
def test_35_a_long_mix_of_everything(seed):
    swarm = find_scenario("swarm")
    assert swarm.swarm is not None
    everything = replace(swarm, swarm=replace(swarm.swarm, share=1.0), phases=Phases(safety_s=120.0, liveness_s=240.0))
    outcome = World(everything, seed).run()
    assert outcome.is_held, outcome
    assert len(outcome.faults) >= 16


LEADERS, STORES = find_scenario("unreachable_leaders"), find_scenario("unreachable_stores")
UNHEARD, STREAMS = find_scenario("unheard_leaders"), find_scenario("unreachable_streams")


def lasting(*ways, at_s=6):
    return tuple(Fault("unreachable", at_s * S, 0, one, other) for one, other in ways)


def elections(world):
    """Who took the claim, and when, in seconds."""
    return [
        (row[1], row[0] / S)
        for row in world.rows
        if row[2].endswith("/leader") and row[6:8] == ("candidate", "loading")
    ]


def test_one_end_of_each_way_is_a_single_node_or_a_store():
    ends = {(fault.target, fault.peer) for seed in range(80) for fault in draw(LEADERS, seed)}
    assert all(sum(end in ("consumer", "leader") for end in pair) <= 1 for pair in ends)
    assert {pair for pair in ends if "consumer" in pair} >= {("consumer", "leader-1"), ("leader-1", "consumer")}
    stores = {(fault.target, fault.peer) for seed in range(60) for fault in draw(STORES, seed)}
    assert {("leader-1", "stream_store"), ("group_store", "leader-1"), ("consumer-1", "group_store")} <= stores
    assert not [pair for pair in stores if {"leader", "consumer"} & {*pair}]
    streams = {(fault.target, fault.peer) for seed in range(60) for fault in draw(STREAMS, seed)}
    assert {("consumer-1", "stream_store"), ("stream_store", "consumer-2"), ("leader-1", "stream_store")} <= streams


@pytest.mark.parametrize(
    "pair", ["consumer", "consumer -> nobody", "group_store -> stream_store", "leader-1 -> leader-1"]
)
def test_a_pair_that_nobody_could_be_is_refused(pair):
    with pytest.raises(ConfigurationError, match="unreachable"):
        check_scenario(replace(LEADERS, unreachable=(pair,)))


@pytest.mark.parametrize("way", [("consumer", "leader-1"), ("leader-1", "consumer")])
def test_members_that_do_not_reach_the_leader_are_served_through_the_other_host(way):
    world = World(LEADERS, 1, schedule=lasting(way))
    outcome = world.run()
    assert outcome.is_held, outcome
    assert set(world.network.cuts) == {
        tuple(f"consumer-{number}" if end == "consumer" else end for end in way) for number in range(1, 5)
    }
    assert [node for node, _ in elections(world)] == ["leader-1"], "it need not go"
    assert {"relayed_to_leader", "relayed_to_borrower"} <= {row[5] for row in world.rows if row[4] == "deliver"}


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 3, 11])
def test_SS_279_a_leader_that_hears_and_is_not_heard_costs_a_group_two_validities_and_two_leases(seed):
    """What docs/consumer_group.md says of it, in simulated time: from the cut until another host's members deliver."""
    load, times = UNHEARD.own.load, UNHEARD.own.configuration
    scenario = replace(UNHEARD, own=replace(UNHEARD.own, load=replace(load, messages=4_000)))
    scenario = replace(scenario, phases=replace(scenario.phases, safety_s=25.0))
    cut_ns = 8 * S
    ways = (("leader-1", "consumer"), ("leader-1", "leader-2"))
    world = World(scenario, seed, schedule=lasting(*ways, at_s=8))
    assert world.run().is_held
    (_, led_s) = elections(world)[-1]
    delivered = [row[0] for row in world.rows if row[4:6] == ("tell", "deliver") and row[0] > led_s * S]
    waited_ms = (delivered[0] - cut_ns) // MS
    least = 2 * times.validity_ms + times.ping_interval_ms
    looks = 2 * times.commit_interval_ms
    assert least < waited_ms < 2 * times.validity_ms + looks + 2 * times.lease_ms + times.find_leader_ms


@pytest.mark.parametrize("way", [("leader-1", "stream_store"), ("stream_store", "leader-1")])
def test_a_leader_that_does_not_reach_the_stream_store_lets_the_claim_go(way):
    world = World(STORES, 0, schedule=lasting(way))
    outcome = world.run()
    assert outcome.is_held, outcome
    assert [node for node, _ in elections(world)] == ["leader-1", "leader-2"]


@pytest.mark.parametrize("way", [("consumer-1", "stream_store"), ("stream_store", "consumer-1")])
def test_a_member_that_does_not_reach_the_stream_store_alone_gives_its_streams_to_others(way):
    """It reaches the group store and its leader, so nobody takes it for dead."""
    world = World(STREAMS, 2, schedule=lasting(way))
    outcome = world.run()
    assert outcome.is_held, outcome
    late = {row[1] for row in world.rows if row[4:6] == ("tell", "deliver") and row[0] > 14 * S}
    assert late
    assert "consumer-1" not in late


SHORT = replace(find_scenario("cut_off"), faults={}, phases=Phases(safety_s=20.0, liveness_s=60.0))


def steps(world, party, name):
    """How often a life of the node took such an event while it was cut off, from the moment when it may know."""
    return sum(row[3].startswith(party) and row[5] == name and 8 * S <= row[0] < 18 * S for row in world.rows)


def test_consumers_and_leader_hosts_are_cut_from_both_stores():
    ends = {(one.target, one.peer) for seed in range(20) for one in draw(find_scenario("cut_off"), seed) if one.peer}
    stores = {"group_store", "stream_store"}
    assert {one for pair in ends for one in pair} >= {"leader-1", "consumer-1", "consumer-2", *stores}
    assert {one in stores for one, _ in ends} == {True, False}


@pytest.mark.long
@pytest.mark.parametrize(
    "ends", [("consumer-1", "stream_store"), pytest.param(("stream_store", "consumer-1"), marks=pytest.mark.long)]
)
def test_a_consumer_that_is_cut_off_reads_nothing_and_others_read(ends):
    cut, whole = (World(SHORT, 4, schedule=schedule) for schedule in ((Fault("store_cut", 6 * S, 12 * S, *ends),), ()))
    for world in (cut, whole):
        outcome = world.run()
        assert outcome.is_held, outcome
    assert steps(cut, "consumer-1", "fetched") == 0 < steps(whole, "consumer-1", "fetched")
    assert steps(cut, "consumer-1", "fetch_failed") > 0 == steps(cut, "consumer-2", "fetch_failed")
    assert steps(cut, "consumer-2", "fetched") > 0


LIES = tuple(Fault("pretend", at * S, 0, f"consumer-{at % 3 + 1}") for at in range(5, 30, 5))


def run(seed=4):
    return World(find_scenario("shared_subscriptions/pretenders"), seed, schedule=LIES).run()


@pytest.mark.long
def test_S17_pretenders_change_nothing():
    outcome = run()
    assert outcome.is_held, outcome
    assert outcome.faults["pretend"] == len(LIES)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_S17_pretenders_beside_other_faults_change_nothing(seed):
    outcome = World(find_scenario("shared_subscriptions/pretenders"), seed).run()
    assert outcome.is_held, outcome
    assert outcome.faults["pretend"] > 0


def test_S17_breaks_where_a_pretender_is_believed(monkeypatch):
    monkeypatch.setattr(agent_process, "is_believed", lambda record, sender, message: True)
    outcome = run()
    assert outcome.monitor == "S17", outcome


LETTERS = find_scenario("shared_subscriptions/dead_letters")
LATE = find_scenario("shared_subscriptions/late_handlers")


def run_of_failing_runs(scenario, seed=0):
    world = World(scenario, seed)
    return world, world.run()


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 6])
def test_S21_what_is_set_aside_has_its_dead_letter(seed):
    world, outcome = run_of_failing_runs(LETTERS, seed)
    assert outcome.is_held, outcome
    stream = next(name for name in world.watch.progress.published if name.endswith("/t000"))
    poison = {(stream, offset) for offset in LETTERS.own.load.poison if offset < world.watch.progress.published[stream]}
    assert poison <= world.watch.letters.stored
    assert 0 < len(world.watch.letters.stored) <= world.watch.set_aside.count
    stored = world.devices["stream_store"].state.by_id
    assert sum(one.count for name, one in stored.items() if "$dead" in name) == len(world.watch.letters.stored)


@pytest.mark.parametrize(
    ("bug", "seed"), [("letter-after-progress", 0), ("letter-before-count", 2), ("letters-repeated", 2)]
)
def test_S21_breaks_where_a_mistake_is_planted(bug, seed):
    with plant_bug(f"shared_subscriptions/{bug}"):
        _, outcome = run_of_failing_runs(LETTERS, seed)
    assert outcome.monitor == "S21", outcome


def test_a_scenario_in_which_a_group_reads_its_own_letters_is_refused():
    with pytest.raises(ConfigurationError, match="is matched by the group's own filter"):
        override(LETTERS, ["shared_subscriptions.configuration.dead_letter_topic=dead"])


@pytest.mark.long
def test_L5_what_slow_applications_keep_is_dealt_with_by_others():
    world, outcome = run_of_failing_runs(LATE)
    assert outcome.is_held, outcome
    for event in ("give_back", "resume"):
        assert any(event in row for row in world.rows), "no application was late"


POISON = find_scenario("shared_subscriptions/poison")


def run_of_poison(seed=0):
    world = World(POISON, seed)
    return world, world.run()


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 5])
def test_S20_what_kills_its_members_is_dropped_and_nothing_else_is(seed):
    world, outcome = run_of_poison(seed)
    assert outcome.is_held, outcome
    stream = next(name for name in world.watch.progress.published if name.endswith("/t000"))
    published = world.watch.progress.published[stream]
    assert published > max(POISON.own.load.poison)
    assert world.watch.set_aside.count == len(POISON.own.load.poison)


def test_S20_breaks_where_a_suspect_is_handed_over_with_others():
    with plant_bug("shared_subscriptions/suspect-not-alone"):
        _, outcome = run_of_poison()
    assert outcome.monitor == "S20", outcome


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("load.given_back", 1.0, "a share from 0 to 0.9"),
        ("load.poison", [-1], "offsets of the first topic"),
        ("configuration.max_deliver", 0, "must lie between 1"),
    ],
)
def test_what_a_scenario_says_of_failures_is_checked(key, value, rule):
    with pytest.raises(ConfigurationError, match=rule):
        override(POISON, [f"shared_subscriptions.{key}={value}"])
