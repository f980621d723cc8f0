"""Publication: what a publisher hands over, again, and in which order; every course of it is explored as well."""

from __future__ import annotations

import pytest

from statemachines.kernel import InvariantViolated, Map, Node, Send, Tell
from statemachines.persistent_sessions.client_message import PublishStored, Refused
from statemachines.persistent_sessions.publication import PUBLICATION
from statemachines.persistent_sessions.publication_record import (
    CancelPublish,
    HandMessage,
    MessageRefused,
    MessageStored,
    NodeLost,
    NodeReached,
    PublicationRecord,
    PublishPayload,
)


class Publisher:
    """A window of three messages and ten bytes; what its machine says is a line of text."""

    def __init__(self, *, connected: bool = True) -> None:
        record = PublicationRecord("publisher", 3, 10)
        self.node = Node(PUBLICATION, record, name="publisher", now_ns=0, check=True)
        if connected:
            self.feed(NodeReached())

    def feed(self, event):
        return [words_of(one) for one in self.node.feed(event, 0)]

    def publish(self, *sizes):
        return [said for size in sizes for said in self.feed(PublishPayload(size))]


def words_of(effect):
    match effect:
        case Send(_, HandMessage(n)):
            return f"hands over {n}"
        case Tell(MessageStored(n)):
            return f"{n} is stored"
        case Tell(MessageRefused(n, why)):
            return f"{n} is refused: {why}"
    raise AssertionError(effect)


def test_PS_760_messages_go_in_the_order_of_the_calls_while_a_node_is_connected():
    publisher = Publisher(connected=False)
    assert publisher.publish(1, 1) == []
    assert publisher.feed(NodeReached()) == ["hands over 1", "hands over 2"]
    assert publisher.publish(1) == ["hands over 3"]


def test_PS_157_what_is_not_answered_goes_to_the_next_node_in_order():
    publisher = Publisher()
    publisher.publish(1, 1, 1, 1)
    assert publisher.feed(PublishStored(2)) == ["2 is stored", "hands over 4"]
    assert publisher.feed(NodeLost()) == []
    assert publisher.feed(NodeReached()) == ["hands over 1", "hands over 3", "hands over 4"]


@pytest.mark.parametrize(
    ("sizes", "at_once"), [((1, 1, 1, 1), 3), ((5, 5, 1), 2), ((9, 2, 1), 1), ((11, 1), 1), ((1, 11, 1), 1)]
)
def test_PS_761_a_window_has_so_many_messages_and_bytes_and_nothing_overtakes(sizes, at_once):
    publisher = Publisher()
    assert publisher.publish(*sizes) == [f"hands over {n}" for n in range(1, at_once + 1)]


def test_PS_761_what_waits_goes_as_soon_as_there_is_room():
    publisher = Publisher()
    publisher.publish(9, 5, 4, 1, 1)
    assert publisher.feed(PublishStored(1)) == ["1 is stored", "hands over 2", "hands over 3", "hands over 4"]


def test_PS_762_a_message_is_stored_once():
    publisher = Publisher()
    publisher.publish(1)
    assert publisher.feed(PublishStored(1)) == ["1 is stored"]
    assert publisher.feed(PublishStored(1)) == []


def test_PS_763_a_refused_message_is_over():
    publisher = Publisher()
    publisher.publish(1)
    assert publisher.feed(Refused(1, "busy")) == ["1 is refused: busy"]
    publisher.feed(NodeLost())
    assert publisher.feed(NodeReached()) == []


def test_PS_764_a_cancelled_message_goes_no_more_and_takes_no_room():
    publisher = Publisher()
    publisher.publish(1, 9, 9)
    assert publisher.feed(CancelPublish(3)) == []
    assert publisher.feed(CancelPublish(1)) == []
    assert publisher.feed(CancelPublish(1)) == []
    assert publisher.publish(1) == ["hands over 4"]
    publisher.feed(NodeLost())
    assert publisher.feed(NodeReached()) == ["hands over 2", "hands over 4"]


def test_PS_764_those_behind_a_cancelled_message_that_waits_go():
    publisher = Publisher()
    publisher.publish(9, 9, 1)
    assert publisher.feed(CancelPublish(2)) == ["hands over 3"]


def test_PS_765_an_answer_about_what_was_not_handed_over_is_ignored():
    publisher = Publisher()
    publisher.publish(9, 9)
    for event in (PublishStored(2), Refused(2, "busy"), PublishStored(7), Refused(7, "busy")):
        assert publisher.feed(event) == []
    assert publisher.feed(PublishStored(1)) == ["1 is stored", "hands over 2"]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (PublicationRecord("publisher", 3, 10, count=2, next=3, sizes=Map({1: 6, 2: 6})), "counts-its-window"),
        (
            PublicationRecord("publisher", 3, 10, 2, 3, Map({1: 6, 2: 6}), under_way=2, window_bytes=12),
            "keeps-its-bounds",
        ),
    ],
)
def test_PS_761_a_window_that_counts_wrong_or_is_too_large_is_noticed(wrong, name):
    with pytest.raises(InvariantViolated, match=name):
        Node(PUBLICATION, wrong, name="publisher", now_ns=0, check=True).feed(NodeReached(), 0)
