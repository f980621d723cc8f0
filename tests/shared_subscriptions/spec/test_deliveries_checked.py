"""Sessions and what applications get of them, explored: what holds, and that each property can fail.

L5 under finite loss: whichever few messages are lost, every message is acknowledged at last.

Entries of the shipped machines: pure, counted alike by SPIN, and no fewer under canonical names.

Obligations: met by the shipped machines, and never by a leader that does not repeat itself; whatever judges them.

Groups in relaxed order, explored: S6 and S13 hold with holes, over the death of a member and of a leader.
"""

import subprocess
import sys

import pytest
from msgspec.structs import replace
from projected_states import projected

from statemachines.kernel import Row
from statemachines.shared_subscriptions import relaxed_order, session, stream_store
from statemachines.shared_subscriptions.assignment import ResendTimer
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.message import LeaderWanted, Ping
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer import counterexample, promela
from statemachines_spec.explorer.actor import Actor, Envelope
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.purity import Entries, recheck
from statemachines_spec.explorer.replay import replay
from statemachines_spec.explorer.variant import substitute_rows
from statemachines_spec.liveness.fair_graph import TooLarge
from statemachines_spec.liveness.judge import graph_of, judge_obligation, live
from statemachines_spec.shared_subscriptions.account import bits, prefix
from statemachines_spec.shared_subscriptions.deliveries import decode_progress, encode_progress
from statemachines_spec.shared_subscriptions.delivery_systems import acknowledging
from statemachines_spec.shared_subscriptions.failure_systems import RELAXED, build_relaxed
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost, Lose, LosingHost
from statemachines_spec.shared_subscriptions.script import GroupSetting
from statemachines_spec.shared_subscriptions.systems import SYSTEMS, build, obligations_of, system

PLAIN = {"engine": "plain", "hashing": False}


def judged(name, *properties, size="small"):
    """The system, with these properties alone (by the first word of their names)."""
    one = system(name, size)
    kept = tuple(each for each in one.properties if each.name.partition(" ")[0] in properties)
    assert kept
    return replace(one, properties=kept, origin=None)


def broken(name, *properties, size="small"):
    """The property that breaks, and the path to it, which fresh nodes must go as well."""
    one = judged(name, *properties, size=size)
    result = explore(one, **PLAIN)
    assert result.path is not None
    assert replay(one, result.path).broken in (result.path.broken, "")
    return result.path.broken, result.path


def test_what_was_acknowledged_of_a_stream():
    assert [prefix(mask) for mask in (0b000, 0b001, 0b011, 0b101, 0b110)] == [0, 1, 2, 1, 0]
    assert (bits(1, 2), bits(2, 1)) == (0b110, 0)
    assert decode_progress(encode_progress([0, 2, 2**63 - 1], 2), 3, 2) == [0, 2, 3]


# -- each property can fail -----------------------------------------------------------------------------------------


def test_an_acknowledgement_that_covers_too_much_loses_a_message():
    with plant_bug("gap-acknowledged"):
        name, path = broken("sessions", "S6")
    assert name in ("S6 consumer-1", "S6 consumer-2")
    assert "nobody has acknowledged" in counterexample.describe_path(path)


def test_an_ended_stream_that_is_granted_again_is_found():
    with plant_bug("ended-stream-granted"):
        name, _ = broken("ends", "S8")
    assert name == "leader:counts-agree"  # a step before S8: what it grants is not free


@pytest.mark.long
def test_a_session_that_goes_on_after_its_lease_is_found():
    with plant_bug("lease-end-not-passed-on"):
        name, _ = broken("sessions", "S5")
    assert name == "S5 sessions"


@pytest.mark.long
def test_a_leader_that_begins_at_the_beginning_delivers_what_is_durable_again():
    with plant_bug("progress-not-loaded"):
        name, path = broken("next-leader", "S13")
    assert name == "S13 durable"
    assert "durable below 1" in path.legs[-1].turns[-1].before


def test_a_store_that_lists_what_does_not_match_is_found(monkeypatch):
    monkeypatch.setattr(stream_store, "matches", lambda topic_filter, topic: True)
    name, path = broken("filtered", "S12")
    assert name == "S12"
    assert path.legs[-1].turns[-1].envelope.event.stream == "0.0/b"


@pytest.mark.long
def test_a_copy_of_an_old_grant_breaks_s14_or_s5():
    with plant_bug("late-grant-installs"):
        one = judged("faultless", "S5", "S13", "S14", size="ci")
        assert not explore(one, hashing=False).is_held


def test_every_message_is_acknowledged_at_last():
    """With one consumer; `gapless check --system answered --liveness` asks the same of two."""
    _, sizes = SYSTEMS["answered"]
    one = build("answered", "", replace(GroupSetting(), **sizes["small"] | {"consumers": 1, "offsets": 2}))
    (result,) = live(one, acknowledging(one))
    assert result.is_held
    assert result.open_states > 50


@pytest.mark.long
def test_a_session_that_never_says_what_is_acknowledged_leaves_messages_for_ever(monkeypatch):
    monkeypatch.setattr(session, "report", lambda reading: ())
    one = system("answered", "small")
    (result,) = live(one, acknowledging(one))
    assert not result.is_held


def acknowledged():
    one = replace(system("lost-messages", "small"), origin=None)
    (result,) = live(one, acknowledging(one))
    return result


@pytest.mark.long
def test_L5_holds_whichever_message_is_lost():
    result = acknowledged()
    assert result.is_held
    assert result.open_states > 1_000


@pytest.mark.long
def test_L5_breaks_where_a_lost_grant_is_not_said_again():
    with plant_bug("grant-never-repeated"):
        assert not acknowledged().is_held


def test_what_is_lost_on_its_way_in_starts_no_leader():
    one = system("lost-messages", "small")
    (host,) = (actor for actor in one.actors if isinstance(actor, LosingHost))
    asked = Envelope("consumer-1~1/1", host.name, LeaderWanted("consumer-1~1/1", "g", "#"))
    about = host.react(host.initial(), Envelope("", host.name, Lose(False))).local
    assert not any(isinstance(given, Lose) for given in host.inputs(about)), "one at a time"
    assert host.react(about, asked).local == host.initial()
    assert host.react(host.initial(), asked).local.party is not None, "the next one is not lost"


def test_what_is_lost_on_its_way_out_was_done_all_the_same():
    (host,) = (one for one in system("lost-messages", "small").actors if isinstance(one, LosingHost))
    about = host.react(host.initial(), Envelope("", host.name, Lose(True))).local
    gone = Envelope("consumer-1~1/1", "leader-1~1/9", Ping("consumer-1~1/1", 1, 1, 1))
    after = host.react(about, gone)
    assert after.sends == ()
    assert after.local == host.initial()
    assert len(host.react(host.initial(), gone).sends) == 1


HOST_NAMES = {LeaderHost: LeaderHost.canonical}


@pytest.mark.long
@pytest.mark.parametrize("name", ["revoke-timeout", pytest.param("reordering", marks=pytest.mark.long)])
def test_spin_counts_the_same(name, tmp_path):
    entries = Entries(system(name, "small"))
    result = explore(entries.system, engine="plain", entries=entries)
    counts = promela.judge(entries, tmp_path)
    assert (counts.states, counts.transitions) == (result.states, result.transitions)


@pytest.mark.long
def test_the_shipped_machines_come_out_alike_under_another_hash_seed():
    entries = Entries(system("leader-crash", "small"))
    result = explore(entries.system, engine="plain", entries=entries)
    assert result.rechecked == sum(result.entries.values())
    assert recheck(entries, 10) == 10


@pytest.mark.long
def test_nothing_is_lost_of_the_shipped_leader_either(monkeypatch):
    """The leader of a small system with all its numbers: more states, which are the same ones under canonical names."""
    kept, named = projected(Entries(system("unsubscribe", "small")), HOST_NAMES)
    monkeypatch.setattr(LeaderHost, "canonical", Actor.canonical)
    more, renamed = projected(Entries(system("unsubscribe", "small")), HOST_NAMES)
    assert named == renamed
    assert len(more) > len(kept) == len(named)


@pytest.mark.long
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(GroupSetting(revoke_timeouts=1), id="revokes"),
        pytest.param(GroupSetting(unsubscribes=1), id="leaving", marks=pytest.mark.long),
    ],
)
def test_the_shipped_machines_meet_their_obligations(setting):
    one = build("live", "", setting)
    results = live(one, obligations_of(one))
    assert all(result.is_held for result in results)
    assert sum(result.open_states > 0 for result in results) >= 4


def silent(row):
    """The same row, without what it does when it is time to say something again."""
    return Row(row.on, row.source, row.to, None, row.when, row.clause) if row.on is ResendTimer else row


@pytest.mark.long
def test_a_leader_that_does_not_repeat_a_grant_leaves_it_open_for_ever():
    one = system("revoke-timeout", "small")
    for actor in one.actors:
        if isinstance(actor, LeaderHost):
            actor.use_machine("leader", substitute_rows(LEADER, silent))
    results = {result.name: result for result in live(one, obligations_of(one))}
    assert not results["L2 leader-1"].is_held
    assert results["L1 consumer-1"].is_held


@pytest.mark.parametrize("engine", ["auto", "compiled"])
def test_a_graph_that_is_too_large_is_refused(engine):
    """The reachable states find room; what can happen without faults, with more room in the network, does not."""
    with pytest.raises(TooLarge, match="6000"):
        live(system("revoke-timeout", "small"), [], states_max=6_000, engine=engine, room=4)


@pytest.mark.long
def test_without_numba_the_same_is_found():
    program = """if True:
        import sys
        sys.modules["numba"] = None
        from statemachines_spec.liveness.judge import graph_of, judge_obligation
        from statemachines_spec.shared_subscriptions.systems import obligations_of, system
        one = system("revoke-timeout", "small")
        graph = graph_of(one)
        print(graph.name, graph.count, *(judge_obligation(graph, each).open_states for each in obligations_of(one)))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    one = system("revoke-timeout", "small")
    graph = graph_of(one, engine="compiled")
    states = [judge_obligation(graph, each).open_states for each in obligations_of(one)]
    assert done.stdout.split() == ["plain", *(str(number) for number in (graph.count, *states))]


def explored(name):
    return explore(build_relaxed(name, *RELAXED[name]))


@pytest.mark.parametrize(
    "name", ["relaxed order", "relaxed death", pytest.param("relaxed crash", marks=pytest.mark.long)]
)
def test_SS_407_nothing_is_lost_and_nothing_comes_twice_without_a_reason(name):
    found = explored(name)
    assert all(found.always.values()), found.always
    assert found.sometimes["hole"]


def test_S6_breaks_where_progress_passes_a_hole(monkeypatch):
    def join(progress, *parts):
        return max([progress, *(last + 1 for part in parts for _, last in part)]), ()

    monkeypatch.setattr(relaxed_order, "join_all_ranges", join)
    found = explored("relaxed order")
    assert {name.split()[0] for name, held in found.always.items() if not held} & {"S6"}
