"""MQTT connections explored: a client that says anything, a takeover, and a session that refuses."""

import pytest
from msgspec.structs import replace
from planted_cells import PAGES, read_rows

from statemachines import cli
from statemachines.kernel import name_of
from statemachines.mqtt_codec import packet as p
from statemachines.mqtt_connections import client_packet as c
from statemachines.mqtt_connections import session_event as s
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.explore import explore
from statemachines_spec.mqtt_connections import SPEC
from statemachines_spec.mqtt_connections.systems import (
    EXACTLY,
    FIRST,
    SECOND,
    TOGETHER,
    UNKNOWN,
    StepSeen,
    connect,
    pubacks,
    run_of,
)


@pytest.mark.parametrize("name", SPEC.systems)
def test_a_connection_keeps_its_promises(name):
    """ACKED, EXACTLY, QUOTA, ONEEND, VIOLATION, SAYABLE, ANSWERED, RELEASED, ONEOWNER and WILL."""
    result = explore(SPEC.system(name), engine="plain", hashing=False)
    assert (result.ended, result.is_held, result.is_shown) == ("complete", True, True)
    assert int(read_rows(PAGES / "mqtt_connections" / "systems.md")[name][2].replace(" ", "")) == result.states


@pytest.mark.long
def test_the_commands_know_it(capsys):
    assert cli.run(("check", "mqtt_connections", "--system", "publishing", "--engine", "plain")) == 0
    assert "VIOLATION" in capsys.readouterr().out
    assert cli.run(("check", "mqtt_connections", "--system", "strange")) == 2


CONNECTION = "connection-1"


class PlayedSystem:
    """One run of a system, event by event."""

    def __init__(self, name):
        self.system = SPEC.system(name)
        self.locals = {actor.name: actor.initial() for actor in self.system.actors}
        self.actors = {actor.name: actor for actor in self.system.actors}

    def play(self, to, event):
        """The event with all that follows; returns kinds of what the connection takes meanwhile."""
        queue, taken = [Envelope("", to, event)], []
        for one in queue:
            before = self.locals[one.to]
            reaction = self.actors[one.to].react(before, one)
            self.locals[one.to] = reaction.local
            taken += [name_of(type(one.event))] if one.to == CONNECTION else []
            queue += self.system.calls_after(self.actors[one.to], before, one.event, reaction, reaction.local)
        return [kind for kind in taken if kind != "packet_run"]

    def answer(self, kind):
        """The session calls this, the longest if there are several."""
        found = [one for one in self.actors["session"].inputs(self.locals["session"]) if isinstance(one.call, kind)]
        return self.play("session", found[-1])

    @property
    def waiting(self):
        """Packet ids that the session has an acknowledgement of to come."""
        return [one.packet_id for one in self.locals["session"].outgoing]


@pytest.fixture
def played():
    """A client to which three messages were delivered together."""
    one = PlayedSystem("acknowledged-runs")
    one.play(CONNECTION, connect())
    one.answer(s.MqttSessionOpened)
    assert one.answer(s.DeliveryReady) == ["delivery_ready"]
    assert one.waiting == [message.packet_id for message in TOGETHER]
    return one


def test_MQ_210_of_a_run_each_counts_until_one_is_unexpected(played):
    played.play(CONNECTION, pubacks(FIRST, UNKNOWN, EXACTLY, SECOND))
    assert played.waiting == [SECOND, EXACTLY]
    assert not played.locals["judge"].broken


def test_MQ_171_what_a_packet_of_a_run_brings_about_comes_before_the_next(played):
    run = run_of(pubacks(SECOND), pubacks(EXACTLY), c.PingreqMessage())
    taken = played.play(CONNECTION, run)
    assert taken == ["puback_message", "puback_message", "unexpected_answer", "pingreq_message"]
    assert played.waiting == [FIRST, EXACTLY]
    assert not played.locals["judge"].broken


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ((), (s.DeliveryAnswered(FIRST, "puback", 0),)),
        ((), (s.DeliveryAnswered(FIRST, "puback", 0, (EXACTLY,)),)),
        ((), (s.DeliveryAnswered(SECOND, "puback", 0, (FIRST,)),)),
        ((c.PubackMessage(p.PubackPacket(1)),), (s.DeliveryAnswered(FIRST, "puback", 0, (SECOND,)),)),
    ],
)
def test_MQ_210_the_judge_reads_every_packet_id_of_a_run(played, sent, told):
    """ANSWERED, where an id is lost, is another one, comes in another order, or is answered as well."""
    judge, local = played.actors["judge"], played.locals["judge"]
    step = StepSeen(CONNECTION, "puback_message", pubacks(FIRST, SECOND))
    right = (s.DeliveryAnswered(FIRST, "puback", 0, (SECOND,)),)
    assert not judge.react(replace(local, told=right), Envelope("", "judge", step)).local.broken
    wrong = judge.react(replace(local, sent=sent, told=told), Envelope("", "judge", step)).local
    assert "ANSWERED" in wrong.broken
