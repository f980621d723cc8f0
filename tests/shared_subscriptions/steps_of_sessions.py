"""Words of the steps texts of a session: records after many events."""

from __future__ import annotations

from typing import Any

from statemachines.shared_subscriptions.session import Fetched, PollTimer
from statemachines.shared_subscriptions.stream import Install, Uninstall
from statemachines.shared_subscriptions.stream_store import MessageBatch


def step_all(fsm: Any, record: Any, events: Any) -> Any:
    """The record after all events, at time 0; timers and effects are left out."""
    for event in events:
        record = fsm.step(record, event, 0).record
    return record


def install_all(owner: str, prefix: str, count: int) -> list[Install]:
    """Streams `prefix00`, `prefix01`, ... of the owner, with grants from 1."""
    return [Install(owner, f"{prefix}{number:02}", number + 1, 0) for number in range(count)]


def install_often(owner: str, stream: str, count: int) -> list[Any]:
    """The same stream again and again, each time fetched and uninstalled."""
    events: list[Any] = []
    for grant in range(1, count + 1):
        fetched = Fetched(grant, (MessageBatch(stream, grant, 0, 4, False),))
        events += [Install(owner, stream, grant, 0), PollTimer(), fetched, Uninstall(owner, stream, grant)]
    return events
