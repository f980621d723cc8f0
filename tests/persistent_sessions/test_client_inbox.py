"""ClientInbox: what a client hands out, and acknowledges; every course of it is explored as well."""

from __future__ import annotations

import pytest

from statemachines.kernel import InvariantViolated, Map, Node, Send, Tell
from statemachines.persistent_sessions.client_inbox import CLIENT_INBOX
from statemachines.persistent_sessions.client_inbox_record import (
    AcknowledgeMessage,
    ClientInboxRecord,
    ConnectionBegun,
    ConnectionEnded,
    InHand,
    MessageReceived,
)
from statemachines.persistent_sessions.client_message import Delivered
from statemachines.persistent_sessions.message import Puback, Pubcomp, Pubrec, Pubrel


class Client:
    """A connected client; what its machine says is a line of text."""

    def __init__(self) -> None:
        self.node = Node(CLIENT_INBOX, ClientInboxRecord("tablet"), name="tablet", now_ns=0, check=True)
        self.feed(ConnectionBegun())

    def feed(self, event):
        return [words_of(one) for one in self.node.feed(event, 0)]

    def deliver(self, packet, payload=b"a", qos=2, *, dup=False):
        return self.feed(Delivered(packet, "t", payload, "t", qos, dup))

    def connect_anew(self):
        return self.feed(ConnectionEnded()) + self.feed(ConnectionBegun())


def words_of(effect):
    match effect:
        case Tell(MessageReceived(n)):
            return f"message {n}"
        case Send(_, Puback(packet) | Pubrec(packet) | Pubcomp(packet)):
            return f"{type(effect.message).__name__.lower()} {packet}"
    raise AssertionError(effect)


@pytest.mark.parametrize(("qos", "answer"), [(1, "puback 1"), (2, "pubrec 1")])
def test_PS_313_a_message_is_acknowledged_once(qos, answer):
    client = Client()
    assert client.deliver(1, qos=qos) == ["message 1"]
    assert client.feed(AcknowledgeMessage(1, 1)) == [answer]
    assert client.feed(AcknowledgeMessage(1, 1)) == []


def test_PS_313_an_acknowledgement_of_what_had_the_packet_before_changes_nothing():
    client = Client()
    client.deliver(1, b"a", qos=1)
    client.deliver(1, b"b", qos=1)
    assert client.feed(AcknowledgeMessage(1, 1)) == []
    assert client.feed(AcknowledgeMessage(1, 2)) == ["puback 1"]


def test_PS_156_of_QoS_1_a_message_comes_again_and_of_QoS_2_it_does_not():
    client = Client()
    assert client.deliver(1, qos=1) + client.deliver(2, qos=2) == ["message 1", "message 2"]
    assert client.connect_anew() == []
    assert client.deliver(1, qos=1, dup=True) + client.deliver(2, qos=2, dup=True) == ["message 3"]
    assert client.feed(AcknowledgeMessage(1, 1)) == []
    assert client.feed(AcknowledgeMessage(2, 2)) == ["pubrec 2"]
    assert client.deliver(2, qos=2, dup=True) == ["pubrec 2"]


@pytest.mark.parametrize(("payload", "dup"), [(b"b", True), (b"b", False), (b"a", False)])
def test_PS_700_any_other_message_under_a_packet_that_is_not_released_is_a_new_one(payload, dup):
    client = Client()
    client.deliver(1, b"a")
    assert client.deliver(1, payload, dup=dup) == ["message 2"]


def test_PS_770_a_release_is_answered_and_a_message_behind_it_is_a_new_one():
    client = Client()
    assert client.feed(Pubrel(9)) == ["pubcomp 9"]
    client.deliver(1)
    client.feed(AcknowledgeMessage(1, 1))
    assert client.feed(Pubrel(1)) == ["pubcomp 1"]
    assert client.deliver(1, dup=True) == ["message 2"]


def test_PS_771_a_message_of_QoS_2_can_be_settled_while_there_is_no_node():
    client = Client()
    client.deliver(1)
    client.feed(ConnectionEnded())
    assert client.feed(AcknowledgeMessage(1, 1)) == []
    client.feed(ConnectionBegun())
    assert client.deliver(1, dup=True) == ["pubrec 1"]


def test_PS_772_what_comes_of_a_connection_that_is_over_is_ignored():
    client = Client()
    client.feed(ConnectionEnded())
    assert client.deliver(1) + client.feed(Pubrel(1)) == []
    client.feed(ConnectionBegun())
    assert client.deliver(1, dup=True) == ["message 1"]


@pytest.mark.parametrize("packet", [0, 5])
def test_PS_156_a_message_of_QoS_0_is_handed_out_and_cannot_be_acknowledged(packet):
    client = Client()
    assert client.deliver(packet, qos=0) == ["message 1"]
    assert client.feed(AcknowledgeMessage(packet, 1)) == []


@pytest.mark.parametrize(
    "in_hand", [{0: InHand(1, 2)}, {1: InHand(2, 2)}, {1: InHand(1, 0)}, {1: InHand(1, 1)}], ids=str
)
def test_PS_156_what_cannot_be_in_hand_is_noticed(in_hand):
    wrong = ClientInboxRecord("tablet", 1, Map(in_hand))
    with pytest.raises(InvariantViolated, match="has-what-may-be"):
        Node(CLIENT_INBOX, wrong, name="tablet", now_ns=0, check=True).feed(ConnectionEnded(), 0)
