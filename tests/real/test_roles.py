"""Who says "leader" to a leader host must prove it: against real processes, by somebody who has the members' secret."""

from __future__ import annotations

import hmac
import os
import struct
import time

import msgspec
import pytest

from statemachines.testing.process_harness import free_port
from tests.real.outside import CONSUMER, LEADER, LeaderHost, Stranger, gapless, identity_of, read_all
from tests.real.stored_group import declare_group, publish_lines

MEMBERS, LEADERS = "the secret of all the nodes", "the secret of leader hosts"
LINES = [f"line {number}" for number in range(10)]


class Insider(Stranger):
    """A stranger who knows a secret, and proves it under whatever role and name it likes."""

    def __init__(self, port, life, role=CONSUMER, *, store, secret=MEMBERS):
        self.nonce = os.urandom(32)
        super().__init__(port, life, role, store=store)
        mine = (4, role, life, self.nonce, False, identity_of(store))
        heard = self._frame(time.monotonic() + 30)
        peer = tuple(msgspec.msgpack.decode(heard)[1:])
        body = msgspec.msgpack.encode(("gapless proof", True, *mine, *peer))
        self.send(hmac.digest(secret.encode(), body, "sha256"))

    def send(self, body):
        if body[0] == "gapless":
            body = [*body[:4], self.nonce, *body[5:]]
        data = msgspec.msgpack.encode(body)
        self.wire.sendall(struct.pack(">I", len(data)) + data)


@pytest.fixture
def store(tmp_path):
    """A group that begins with all that is stored."""
    store = tmp_path / "messages.db"
    declare_group(store)
    publish_lines(store, LINES)
    return store


@pytest.fixture
def secrets(tmp_path):
    """Files of secrets, by their lines."""

    def file(*lines):
        path = tmp_path / f"{hash(lines):x}.secret"
        path.touch(mode=0o600)
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return file


def registered(trace):
    """The borrowers that a leader host has answered."""
    rows = [msgspec.json.decode(line) for file in trace.glob("*") for line in file.read_bytes().splitlines()]
    return {row["peer"] for row in rows if (row.get("kind"), row.get("event")) == ("send", "leader_connect_response")}


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.05)


@pytest.mark.parametrize("guarded", [True, False], ids=["leader-secret", "no-leader-secret"])
def test_SS_251_a_member_that_says_it_is_a_leader_host_registers_nobody(tmp_path, store, secrets, guarded):
    """It would speak for borrowers of others: only a leader host passes them on."""
    options = ("--secret-file", secrets(MEMBERS), "--trace", tmp_path / "trace")
    more = ("--leader-secret-file", secrets(LEADERS)) if guarded else ()
    with LeaderHost(tmp_path, store, *options, *more) as host:
        with Insider(host.port, "fake~1", LEADER, store=store) as insider:
            for _ in range(20):
                try:
                    insider.say("fake~1/1", "leader", "leader_wanted", "victim~1/1", "g", "#")
                except OSError:
                    break
                if insider.is_cut_off(0.2):
                    break
            assert insider.is_cut_off(), "it is heard"
        said = "same --leader-secret-file"
        host.until_said(f"(fake) is cut off: {'does not know our secret' if guarded else 'says it is a leader'}")
        assert said in host.said
        with Insider(host.port, "honest~1", store=store) as member:
            member.register("honest~1/1", "g", "#")
        assert host.stop() == 0, host.said
    assert registered(tmp_path / "trace") == {"honest~1/1"}


def test_SS_251_leader_hosts_that_share_the_second_secret_pass_borrowers_on(tmp_path, store, secrets):
    folders = [tmp_path / name for name in ("leading", "following")]
    for folder in folders:
        folder.mkdir()
    patient = tmp_path / "group.toml"
    patient.write_text("validity_ms = 60_000\n")  # nobody pings here
    both = ("--secret-file", secrets(MEMBERS), "--leader-secret-file", secrets(LEADERS), "--config", patient)
    address = f"127.0.0.1:{free_port()}"
    with LeaderHost(folders[0], store, *both, "--peers", address, "--name", "leader-1") as leading:
        with Insider(leading.port, "first~1", store=store) as first:
            first.register("first~1/1", "g", "#")
        peers = ("--listen", address, "--peers", f"127.0.0.1:{leading.port}", "--name", "leader-2")
        with LeaderHost(folders[1], store, *both, *peers) as following:
            with Insider(following.port, "second~1", store=store) as second:

                def is_answered():
                    second.say("second~1/1", "leader", "leader_wanted", "second~1/1", "g", "#")
                    heard = second.hear("relayed_to_borrower", seconds=0.3)
                    return heard is not None and heard[3][3][:2] == ["leader_connect_response", "second~1/1"]

                until(is_answered)
            assert following.stop() == 0, following.said
        assert leading.stop() == 0, leading.said
        assert "is cut off" not in leading.said + following.said


def test_SS_251_leader_hosts_with_the_members_secret_alone_do_not_start(store, secrets):
    peers = ("--peers", "127.0.0.1:7411", "--secret-file", secrets(MEMBERS))
    refused = gapless("node", "leader", "--store", store, "--listen", "127.0.0.1:0", *peers)
    assert refused.returncode == 2
    assert "the same --leader-secret-file" in refused.stderr
    assert MEMBERS not in refused.stderr


def test_SS_253_two_secrets_are_valid_while_one_takes_the_place_of_the_other(tmp_path, store, secrets):
    """The leader host has both; members of before and after take part, one that has neither does not."""
    new = "the secret of all nodes to come"
    other = "a secret that was never valid"
    with LeaderHost(tmp_path, store, "--secret-file", secrets(new, MEMBERS)) as host:
        with Insider(host.port, "stranger~1", store=store, secret=other) as stranger:
            assert stranger.is_cut_off()
        for number, secret in enumerate((MEMBERS, new)):
            with Insider(host.port, f"raw~{number + 1}", store=store, secret=secret) as raw:
                raw.register(f"raw~{number + 1}/1", "g", "#")
                raw.say(f"raw~{number + 1}/1", "leader", "disconnect", f"raw~{number + 1}/1", 1, number + 1, [])
        got = read_all(tmp_path, store, host.port, len(LINES), "--secret-file", secrets(MEMBERS))
        assert got == set(range(len(LINES)))
        assert host.stop() == 0, host.said
    assert "(stranger) is cut off: does not know our secret" in host.said
