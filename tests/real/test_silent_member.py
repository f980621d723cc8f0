"""A stranger that takes part and never answers a grant, against real processes: it keeps no stream from the others."""

from __future__ import annotations

import threading

import pytest
from stage import TENTH

from tests.real.outside import LeaderHost, Stranger, read_all
from tests.real.stored_group import declare_group, publish_lines

LINES = [f"line {number}" for number in range(20)]


@pytest.fixture
def config(tmp_path):
    """Times of a tenth, so that a validity is short."""
    path = tmp_path / "group.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in TENTH.items()))
    return path


@pytest.fixture
def store(tmp_path, config):
    """Messages in one stream, and a group that begins before them."""
    store = tmp_path / "messages.db"
    declare_group(store, config=config)
    publish_lines(store, LINES)
    return store


class Mute(threading.Thread):
    """Registers, pings for as long as anybody takes it for a member, and answers no grant."""

    def __init__(self, stranger, borrower):
        super().__init__(daemon=True)
        self.stranger = stranger
        self.borrower = borrower
        self.granted, self.kicked = threading.Event(), threading.Event()

    def run(self):
        _, _, leader, *pair = self.stranger.register(self.borrower, "g", "#")
        number = 0
        while not self.kicked.is_set():
            number += 1
            self.stranger.say(self.borrower, leader, "ping", self.borrower, *pair, number, [])
            heard = self.stranger.hear("grant", "invalidate", seconds=0.1)
            if heard is not None and heard[3][0] == "grant":
                self.granted.set()
            elif heard is not None:
                self.kicked.set()


def test_who_never_answers_a_grant_loses_it_to_the_others(tmp_path, store, config):
    with (
        LeaderHost(tmp_path, store, "--config", config) as host,
        Stranger(host.port, "mute~1", store=store) as stranger,
    ):
        mute = Mute(stranger, "mute~1/1")
        mute.start()
        assert mute.granted.wait(60), host.said
        acknowledged = read_all(tmp_path, store, host.port, len(LINES), "--config", config)
        assert acknowledged == set(range(len(LINES)))
        assert mute.kicked.wait(60), "it was told so"
        assert host.stop() == 0, host.said
