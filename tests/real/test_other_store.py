"""A member whose store is another one, against real processes: it is told so by name, and takes no part."""

from __future__ import annotations

import shutil

from tests.real.outside import LeaderHost, Process, Stranger, identity_of, read_all
from tests.real.stored_group import declare_group, publish_lines

LINES = [f"line {number}" for number in range(20)]


def make_store(folder, name, lines):
    """One stream with these lines, and a group that begins before them."""
    store = folder / name
    declare_group(store)
    publish_lines(store, lines)
    return store


def test_SS_236_a_member_of_another_store_is_told_so_and_takes_nothing(tmp_path):
    """Its stream has the same name and as many messages: what it acknowledged of them would count as read here."""
    ours = make_store(tmp_path, "ours.db", LINES)
    (tmp_path / "other").mkdir()
    theirs = make_store(tmp_path / "other", "theirs.db", [line.upper() for line in LINES])
    out = tmp_path / "other" / "got.txt"
    with LeaderHost(tmp_path, ours) as host:
        leader = ("--leader", f"127.0.0.1:{host.port}", "--state", tmp_path / "other", "--name", "astray")
        astray = ("node", "consumer", "$shared/g/#", "--store", theirs, "--out", out, *leader)
        with Process(tmp_path / "astray.log", *astray) as consumer:
            host.until_said("(astray) is cut off: works on another store")
            consumer.until_said("is cut off: works on another store")
            for said in (host.said, consumer.said):
                assert identity_of(ours) in said
                assert identity_of(theirs) in said
            assert read_all(tmp_path, ours, host.port, len(LINES)) == set(range(len(LINES)))
            assert not out.exists() or not out.read_bytes()
            assert consumer.stop() == 0, consumer.said
        assert host.stop() == 0, host.said


def test_SS_236_leader_hosts_of_two_stores_pass_nothing_on_to_each_other(tmp_path):
    ours = make_store(tmp_path, "ours.db", LINES)
    (tmp_path / "other").mkdir()
    theirs = make_store(tmp_path / "other", "theirs.db", LINES)
    with (
        LeaderHost(tmp_path, ours) as host,
        LeaderHost(tmp_path / "other", theirs, "--peers", f"127.0.0.1:{host.port}") as other,
    ):
        for process in (host, other):
            process.until_said("works on another store")


def test_SS_236_a_stranger_that_names_no_store_or_another_is_cut_off(tmp_path):
    with LeaderHost(tmp_path, make_store(tmp_path, "ours.db", LINES)) as host:
        for name, store in (("c1", ""), ("c2", "0" * 32)):
            with Stranger(host.port, f"{name}~1", store=store) as stranger:
                assert stranger.is_cut_off()
            host.until_said(f"({name}) is cut off: works on another store")


def test_SS_244_a_member_of_a_copy_follows_nobody_whom_its_copy_does_not_name(tmp_path):
    """A copy has the identity of its original; its claim is another one."""
    ours = make_store(tmp_path, "ours.db", LINES)
    copy = tmp_path / "copy.db"
    shutil.copy(ours, copy)
    out = tmp_path / "astray.txt"
    with LeaderHost(tmp_path, ours) as host:
        leader = ("--leader", f"127.0.0.1:{host.port}", "--state", tmp_path)
        astray = ("node", "consumer", "$shared/g/#", "--store", copy, "--out", out, *leader)
        with Process(tmp_path / "astray.log", *astray) as consumer:
            assert read_all(tmp_path, ours, host.port, len(LINES)) == set(range(len(LINES)))
            assert consumer.stop() == 0, consumer.said
    assert not out.exists() or not out.read_bytes()
