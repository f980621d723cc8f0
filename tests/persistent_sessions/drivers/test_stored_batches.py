"""What one statement of PostgreSQL stores, and what is carried out step by step instead."""

from __future__ import annotations

import pytest

from statemachines.drivers.persistent_sessions.request_batch import BatchReader, may_share
from statemachines.drivers.persistent_sessions.route_rows import PublisherPacket, PutMessage
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import PutRows

LIFE = ("n1", 1, b"store")


def rows(first, writer="n1", epoch=1, session="s1", message=None):
    return PutRows(session, writer, epoch, (Queued(first, message or f"m{first}", "#", 1),))


def read(*requests):
    return BatchReader(lambda asked: (), 1).read(LIFE, 1, requests)


def test_PS_540_sessions_with_the_same_rows_share_them():
    batch = read(
        rows(1), rows(1, session="s2"), rows(5, session="s3", message="m1"), rows(1, session="s4", message="m2")
    )
    assert [(one.session, one.first, one.kind) for one in batch.ranges] == [
        (b"s1", 1, 0), (b"s2", 1, 0), (b"s3", 5, 0), (b"s4", 1, 1),
    ]  # fmt: skip
    assert [(one.kind, one.message) for one in batch.hands] == [(0, b"m1"), (1, b"m2")]


@pytest.mark.parametrize(
    "more", [{"retain": True}, {"will": "c/1"}, {"is_appended": True}, {"packet": PublisherPacket("s1", 1, 5)}]
)
def test_PS_511_a_message_that_changes_more_than_messages_and_rows_is_stored_alone(more):
    assert may_share(PutMessage("m1", "t", b"x", 1))
    assert not may_share(PutMessage("m1", "t", b"x", 1, **more))
