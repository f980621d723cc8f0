"""Sessions and what applications get of them, explored: what holds, and that each property can fail."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.shared_subscriptions import session, stream_store
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer import counterexample
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.replay import replay
from statemachines_spec.liveness.judge import live
from statemachines_spec.shared_subscriptions.account import bits, prefix
from statemachines_spec.shared_subscriptions.deliveries import decode_progress, encode_progress
from statemachines_spec.shared_subscriptions.delivery_systems import acknowledging
from statemachines_spec.shared_subscriptions.group_setting import GroupSetting
from statemachines_spec.shared_subscriptions.systems import SYSTEMS, build, system

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


def test_a_session_that_goes_on_after_its_lease_is_found():
    with plant_bug("lease-end-not-passed-on"):
        name, _ = broken("sessions", "S5")
    assert name == "S5 sessions"


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


def test_the_same_message_twice_under_one_grant_breaks_s13_and_s14(monkeypatch):
    told = session.deliver

    def wrong(record, event, now_ns):
        """The message is put back after it was handed over."""
        record, effects = told(record, event, now_ns)
        key = session.reading_key(event.owner, event.stream)
        reading = replace(record.readings[key], delivered=event.first, waiting=True)
        return replace(record, readings=record.readings.set(key, reading), to_take=record.to_take.push(key)), effects

    monkeypatch.setattr(session, "deliver", wrong)
    assert broken("faultless", "S13")[0] == "S13"
    assert broken("faultless", "S14")[0] == "S14"


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


def test_a_session_that_never_says_what_is_acknowledged_leaves_messages_for_ever(monkeypatch):
    monkeypatch.setattr(session, "report", lambda reading: ())
    one = system("answered", "small")
    (result,) = live(one, acknowledging(one))
    assert not result.is_held
