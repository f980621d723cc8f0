"""L5 under finite loss: whichever few messages are lost, every message is acknowledged at last."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.shared_subscriptions.message import LeaderWanted, Ping
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.liveness.judge import live
from statemachines_spec.shared_subscriptions.delivery_systems import acknowledging
from statemachines_spec.shared_subscriptions.leader_host import Lose, LosingHost
from statemachines_spec.shared_subscriptions.systems import system


def acknowledged():
    one = replace(system("lost-messages", "small"), origin=None)
    (result,) = live(one, acknowledging(one))
    return result


def test_L5_holds_whichever_message_is_lost():
    result = acknowledged()
    assert result.is_held
    assert result.open_states > 1_000


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
