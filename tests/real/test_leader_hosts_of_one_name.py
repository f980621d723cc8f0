"""Two real leader hosts under one name, which share the secret of leader hosts: the newer one leads, the older one says
so and ends, and nothing is delivered twice (SS-231, SS-254)."""

from __future__ import annotations

import time

import msgspec
from stage import TENTH

from statemachines.testing.process_harness import free_port
from tests.real.outside import LeaderHost, Process
from tests.real.stored_group import declare_group, publish_lines

LINES = 30
SUPERSEDED = 4


def secret(folder, name, words):
    path = folder / name
    path.touch(mode=0o600)
    path.write_text(f"{words}\n")
    return path


def publish(store, number):
    """Some more lines of one topic."""
    publish_lines(store, [f"{number} {line}" for line in range(LINES)])


def lines_of(out):
    """(what, offset) of each line that the consumer wrote."""
    data = out.read_bytes() if out.exists() else b""
    return [(one[0], one[3]) for one in map(msgspec.json.decode, data[: data.rfind(b"\n") + 1].splitlines())]


def until_acknowledged(out, count, consumer):
    end = time.monotonic() + 60
    while sum(what == "ack" for what, _ in lines_of(out)) < count:
        assert time.monotonic() < end, consumer.said
        time.sleep(0.05)


def test_SS_231_SS_254_two_leader_hosts_of_one_name_do_not_lead_side_by_side(tmp_path):
    folders = [tmp_path / name for name in ("older", "newer")]
    for folder in folders:
        folder.mkdir()
    store, out = tmp_path / "messages.db", tmp_path / "got.txt"
    members = ("--secret-file", secret(tmp_path, "members", "the secret of all the nodes"))
    leaders = (*members, "--leader-secret-file", secret(tmp_path, "leaders", "the secret of leader hosts"))
    config = tmp_path / "group.toml"
    config.write_text("".join(f"{key} = {value}\n" for key, value in TENTH.items()))
    leaders += ("--config", config)
    members += ("--config", config)
    declare_group(store, config=config)
    publish(store, 1)
    port = free_port()
    with LeaderHost(folders[0], store, *leaders, "--name", "leader-1") as older:
        asked = ("--leader", f"127.0.0.1:{older.port},127.0.0.1:{port}", "--state", tmp_path, "--out", out)
        with Process(
            tmp_path / "consumer.log", "node", "consumer", "$shared/g/#", "--store", store, *asked, *members
        ) as one:
            until_acknowledged(out, LINES, one)
            again = ("--listen", f"127.0.0.1:{port}", "--peers", f"127.0.0.1:{older.port}", "--name", "leader-1")
            with LeaderHost(folders[1], store, *leaders, *again) as newer:
                assert older.child.wait(60) == SUPERSEDED, older.said
                assert "is the newer life of leader-1, and this one ends" in older.said
                publish(store, 2)
                until_acknowledged(out, 2 * LINES, one)
                assert "leads it, under epoch 2" in newer.said
                assert one.stop() == 0, one.said
                assert newer.stop() == 0, newer.said
    assert "does not lead it any more: released" in older.said
    got = [offset for what, offset in lines_of(out) if what == "got"]
    assert got == list(range(2 * LINES)), "each once, in order"
