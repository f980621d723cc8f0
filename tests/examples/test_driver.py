"""The driver of docs/embedding.md runs, and the page shows the same lines."""

import importlib.util
import re
from pathlib import Path
from queue import Empty, Queue

import pytest

from statemachines.shared_subscriptions.borrower import BorrowerRecord, Destroyed, LeaseBegan, OnUnsubscribe
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Grant,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Report,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream import Finish, Install, StreamProgress

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "driver.py"
ME, LEADER = "consumer-1~1/1", "leader-1~1/1"
PAIR = (ME, 1, 1)


@pytest.fixture
def driver():
    spec = importlib.util.spec_from_file_location("example_driver", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Inbox(Queue):
    """Waiting costs no time: the clock of the example is moved instead."""

    now_ns = 0

    def get(self, block=True, timeout=None):
        try:
            return super().get(block=False)
        except Empty:
            assert timeout is not None, "the example waits for ever"
            self.now_ns += round(timeout * 1e9)
            raise


class World:
    """A leader that does not hear the first question, a session and an application, all of a few lines."""

    def __init__(self):
        self.inbox = Inbox()
        self.sent = []
        self.told = []
        self.asked_at_ms = []

    def send(self, to, message):
        self.sent.append((to, message))
        match message:
            case LeaderWanted():
                self.asked_at_ms.append(self.inbox.now_ns // MS)
                if len(self.asked_at_ms) > 1:
                    self.inbox.put(LeaderConnectResponse(ME, LEADER, 1, 1))
            case Ping(n=n):
                self.inbox.put(PingResponse(*PAIR, n))
                if n == 1:
                    self.inbox.put(Grant(*PAIR, "orders/eu", 1, 100))

    def tell(self, event):
        self.told.append(event)
        match event:
            case Install(stream=stream, grant=grant):
                self.inbox.put(StreamProgress(stream, grant, 120))
                self.inbox.put(OnUnsubscribe())
            case Finish(stream=stream, grant=grant):
                self.inbox.put(StreamProgress(stream, grant, 125, True))


def test_the_driver_finds_its_leader_borrows_a_stream_and_gives_it_back(driver, monkeypatch):
    world = World()
    monkeypatch.setattr(driver, "monotonic_ns", lambda: world.inbox.now_ns)
    record = BorrowerRecord(ME, "billing", "orders/#", ("leader-1",), Configuration().check())
    driver.drive(record, world.inbox, world.send, world.tell)
    assert world.asked_at_ms == [0, 1000], "the timer made it ask again"
    assert world.sent[:2] == [("leader-1", LeaderWanted(ME, "billing", "orders/#"))] * 2
    assert (LEADER, UpdateProgress(*PAIR, "orders/eu", 1, 120, False)) in world.sent
    assert world.sent[-1] == (LEADER, Disconnect(*PAIR, (Report("orders/eu", 1, 125, True),)))
    assert LeaseBegan(ME) in world.told
    assert world.told[-1] == Destroyed(ME, False, 1, (Report("orders/eu", 1, 125, True),))


def test_the_page_shows_the_same_lines():
    page = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert blocks == [EXAMPLE.read_text(encoding="utf-8")]
