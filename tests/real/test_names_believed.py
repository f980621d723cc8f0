"""Names from strangers, against real processes: no group ends a leader host or reads what is another's."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.real.outside import LeaderHost, Stranger, gapless
from tests.real.stored_group import declare_group


def declare(store, *subscriptions):
    for one in subscriptions:
        declare_group(store, one)


def ask(stranger, borrower, group, topic_filter):
    stranger.say(borrower, "leader", "leader_wanted", borrower, group, topic_filter)


def test_a_group_that_is_called_like_progress_ends_no_leader_host(tmp_path):
    store = tmp_path / "messages.db"
    declare(store, "$shared/g/a", "$shared/g/a:progress:x")
    with LeaderHost(tmp_path, store) as host, Stranger(host.port, "c1~1", store=store) as stranger:
        for borrower, topic_filter in (("c1~1/1", "a"), ("c1~1/2", "a:progress:x")):
            stranger.register(borrower, "g", topic_filter)
        assert host.stop() == 0, host.said
    assert gapless("group", "destroy", "$shared/g/a", "--store", store).returncode == 0
    with closing(sqlite3.connect(store)) as connection:
        keys = [key for (key,) in connection.execute("SELECT key FROM group_records")]
    assert sorted(key.rpartition("/")[2] for key in keys) == [
        "a:claim",
        "a:progress:x:claim",
        "a:progress:x:properties",
        "a:progress:x:root",
        "a:root",
    ], "what is another group's is left alone"


def test_a_group_name_that_reaches_into_a_filter_is_refused(tmp_path):
    store = tmp_path / "messages.db"
    declare(store, "$shared/g/t/#")
    with LeaderHost(tmp_path, store) as host, Stranger(host.port, "c1~1", store=store) as stranger:
        ask(stranger, "c1~1/1", "g/t", "#")
        host.until_said("dropped a message of c1~1/1")
        assert "group = 'g/t'" in host.said
        ask(stranger, "c1~1/1", "g\x1b[2J", "#")
        host.until_said("must have no control characters")
        assert "\x1b" not in host.said
        stranger.register("c1~1/2", "g", "t/#")
        assert host.stop() == 0
