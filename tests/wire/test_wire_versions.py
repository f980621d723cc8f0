"""Versions of the wire: what the next one may add, and what this one says to a peer of another version."""

from __future__ import annotations

import hmac
import json
from contextlib import contextmanager
from pathlib import Path
from typing import get_args
from unittest.mock import patch

import msgspec
import pytest
from message_tables import describe_fields
from test_wire_page import SECTIONS

from statemachines import wire
from statemachines.drivers.greeting import NONCE_SIZE, Greeting, Terms
from statemachines.kernel import name_of
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import EpochRows
from statemachines.shared_subscriptions.message import LeaderWanted, Ping, RelayedToLeader, Report, UpdateProgress
from statemachines.wire import (
    OLDEST,
    VERSION,
    FrameError,
    Hello,
    Packet,
    PacketCodec,
    decode_hello,
    frame_hello,
    hello_of,
)

RECORDED = Path(__file__).parent / "versions"
SECRET, NONCES = b"the secret", (b"d" * NONCE_SIZE, b"l" * NONCE_SIZE)


# -- what a version may add ------------------------------------------------------------------------------------------


def list_declarations(unions=SECTIONS):
    """Who says it -> message -> its fields, as docs/wire.md writes them."""
    found = {title.removeprefix("## "): get_args(union) for title, union in unions.items()}
    found["in messages"] = (Report, Queued, EpochRows)
    return {title: {name_of(kind): describe_fields(kind) for kind in kinds} for title, kinds in found.items()}


def read_recorded(version):
    return json.loads((RECORDED / f"{version}.json").read_text())


def find_changes(recorded, declared):
    """What a node of the recorded version does not understand of the declared messages, or the other way round."""
    changes = []
    for title, messages in recorded.items():
        for name, fields in messages.items():
            now = declared[title].get(name)
            if now is None:
                changes.append(f"{name} is gone")
            elif now != fields:
                more = now.removeprefix(f"{fields}, " if fields else "")
                if more == now and fields:
                    changes.append(f"fields of {name} have changed")
                elif any(" = " not in one for one in more.split(", ")):
                    changes.append(f"a further field of {name} has no default")
    return changes


def test_the_messages_of_this_version_are_recorded():
    """A field or message that is added needs a version of its own: raise VERSION, and write a file for it."""
    assert read_recorded(VERSION) == list_declarations()


@pytest.mark.parametrize("version", range(OLDEST, VERSION + 1))
def test_PS_721_a_later_version_has_only_added_what_the_earlier_one_ignores(version):
    assert find_changes(read_recorded(version), list_declarations()) == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("`n` 0..2^53, `more` number", "a further field of publish_stored has no default"),
        ("`more` number = 0, `n` 0..2^53", "fields of publish_stored have changed"),
        ("`n` number", "fields of publish_stored have changed"),
        (None, "publish_stored is gone"),
        ("`n` 0..2^53, `more` number = 0", ""),
    ],
)
def test_PS_721_a_change_that_the_earlier_version_does_not_understand_is_found(fields, says):
    declared, title = list_declarations(), "Persistent sessions: a node to its client"
    declared[title] = {**declared[title], "publish_stored": fields, "new": "`n` number"}
    assert find_changes(list_declarations(), declared) == ([says] if says else [])


def test_PS_721_fields_behind_the_known_ones_are_ignored_and_missing_ones_have_their_defaults():
    codec = PacketCodec(LeaderWanted | Ping | UpdateProgress | RelayedToLeader)

    def decode(*message):
        return codec.decode(msgspec.msgpack.encode(["c1~1/1", "leader", 1, message])).message

    assert decode("ping", "c1~1/1", 1, 2, 3) == Ping("c1~1/1", 1, 2, 3)
    progress = ["c1~1/1", 1, 2, "s", 3, 4, True]
    report = ["s", 1, 2, True, 0, False, [], "", "next", {"a": [None]}]
    assert decode("update_progress", *progress) == UpdateProgress(*progress)
    assert decode("update_progress", *progress, 5, True, [[6, 7]], "why", "next", [[1.5]], {}) == UpdateProgress(
        *progress, 5, True, ((6, 7),), "why"
    )
    ping = ["ping", "c1~1/1", 1, 2, 3, [report], 7]
    assert decode(*ping) == Ping("c1~1/1", 1, 2, 3, (Report("s", 1, 2, True),))
    assert decode("relayed_to_leader", "l~1/1", "l2~1/1", ping, 7).message == decode(*ping)


@pytest.mark.parametrize(
    "message",
    [
        ["ping", "c1~1/1", 1, 2],  # a field without a default is missing
        ["ping", "c1~1/1", 1, 2, "3", [], 7],  # one that is known has another type
        ["update_progress", "c1~1/1", 1, 2, "s", 3, 4, True, 2**31, False, [], "", 7],  # or is out of its bounds
        ["new_in_the_next_version", 1],
    ],
)
def test_PS_721_what_is_wrong_in_the_known_fields_ends_the_connection_whatever_follows(message):
    with pytest.raises(FrameError):
        PacketCodec(LeaderWanted | Ping | UpdateProgress).decode(
            msgspec.msgpack.encode(["c1~1/1", "leader", 1, message])
        )


def test_PS_721_a_deep_value_in_an_unknown_field_is_refused():
    body = msgspec.msgpack.encode(["c1~1/1", "leader", 1, ["ping", "c1~1/1", 1, 2, 3, [], 0]])
    with pytest.raises(FrameError):
        PacketCodec(Ping).decode(body[:-1] + b"\x91" * 100_000 + b"\xc0")


def test_PS_721_a_packet_has_four_places_in_every_version():
    with pytest.raises(FrameError):
        PacketCodec(Ping).decode(msgspec.msgpack.encode(["c1~1/1", "leader", 1, ["ping", "c1~1/1", 1, 2, 3], 5]))


# -- which version is spoken -----------------------------------------------------------------------------------------


@contextmanager
def as_version(version, oldest=None):
    """What greets within is of this version."""
    with patch.multiple(wire, VERSION=version, OLDEST=oldest or version - 1):
        yield


def body_of(data):
    return data[4:]


def hello_body(version, oldest=0, role="locks/consumer", life="c~1"):
    return body_of(frame_hello(Hello("gapless", version, role, life, oldest=oldest)))


@pytest.mark.parametrize(
    ("ours", "theirs", "spoken"),
    [
        ((4, 4), (4, 0), 4),
        ((4, 4), (4, 4), 4),
        ((4, 4), (5, 4), 4),
        ((5, 4), (4, 0), 4),
        ((5, 4), (5, 4), 5),
        ((5, 4), (6, 5), 5),
        ((7, 4), (9, 5), 7),
    ],
)
def test_PS_720_the_lower_version_is_spoken_where_the_ranges_overlap(ours, theirs, spoken):
    with as_version(*ours):
        assert wire.choose_version(decode_hello(hello_body(*theirs), "locks/consumer")) == spoken


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        ((4, 4), (5, 0), "speaks version 5 of the wire, and this node speaks 4; upgrade this node"),
        ((5, 4), (7, 6), "speaks version 6 to 7 of the wire, and this node speaks 4 to 5; upgrade this node"),
        ((7, 6), (5, 4), "speaks version 4 to 5 of the wire, and this node speaks 6 to 7; upgrade that one"),
        ((5, 4), (3, 0), "speaks version 3 of the wire, and this node speaks 4 to 5; upgrade that one"),
        ((5, 4), (5, 6), "speaks version 6 to 5 of the wire, and this node speaks 4 to 5; upgrade that one"),
        ((5, 4), (-1, 0), "speaks version -1 of the wire"),
    ],
)
def test_PS_722_ranges_that_do_not_overlap_are_refused_with_both_and_the_side_to_upgrade(ours, theirs, says):
    with as_version(*ours), pytest.raises(FrameError) as refused:
        decode_hello(hello_body(*theirs), "locks/consumer")
    assert says in str(refused.value)
    assert len(str(refused.value)) < wire.REFUSAL_MAX


@pytest.mark.parametrize("oldest", [-1, "4", 4.0, True, [4], 2**64 - 1])
def test_PS_722_what_is_no_range_is_refused(oldest):
    body = msgspec.msgpack.encode(["gapless", VERSION, "locks/consumer", "c~1", b"", False, "", oldest])
    with pytest.raises(FrameError):
        decode_hello(body, "locks/consumer")


def test_PS_720_a_hello_without_a_range_is_that_of_its_version_alone_and_later_fields_are_ignored():
    body = msgspec.msgpack.encode(["gapless", VERSION, "locks/consumer", "c~1"])
    assert decode_hello(body, "locks/consumer") == Hello("gapless", VERSION, "locks/consumer", "c~1")
    later = msgspec.msgpack.encode(["gapless", VERSION, "locks/consumer", "c~1", b"", False, "s", 3, {"later": [1]}])
    assert decode_hello(later, "locks/consumer") == Hello(
        "gapless", VERSION, "locks/consumer", "c~1", store="s", oldest=3
    )


def test_PS_720_a_hello_has_a_range_only_where_it_is_one():
    """So that of a version alone has the bytes that it always had."""
    fields = ["locks/consumer", "c~1", b"", False, ""]
    for version, oldest, told in ((4, 4, []), (5, 4, [4])):
        with as_version(version, oldest):
            frame = wire.encode_hello("locks/consumer", "c~1")
        assert msgspec.msgpack.decode(body_of(frame)) == ["gapless", version, *fields, *told]


def greet(dialler_version, listener_version, change=lambda body: body):
    """Two sides with a secret greet; `change`: what somebody on the line does to the hello of the side that dials."""
    sides = []
    for version, place, role in ((dialler_version, 0, "consumer"), (listener_version, 1, "leader")):
        with as_version(version):
            mine = hello_of(role, f"{role}~1", nonce=NONCES[place])
        other = "leader" if place == 0 else "consumer"
        sides.append(Greeting(mine, other, dialled=not place, terms=Terms((SECRET,))))
    dialler, listener = sides
    with as_version(listener_version):
        listener.feed(change(body_of(dialler.begin())))
    with as_version(dialler_version):
        proof = dialler.feed(body_of(listener.begin()))
    with as_version(listener_version):
        answer = listener.feed(body_of(proof))
    with as_version(dialler_version):
        dialler.feed(body_of(answer))
    return dialler, listener


@pytest.mark.parametrize("versions", [(5, 6), (6, 5), (6, 6)])
def test_PS_720_two_versions_prove_that_they_share_a_secret(versions):
    assert all(side.done for side in greet(*versions))


def test_PS_720_a_range_that_was_changed_on_the_way_is_not_believed():
    def lower(body):
        return msgspec.msgpack.encode([*msgspec.msgpack.decode(body)[:-1], 1])

    with pytest.raises(FrameError, match="does not know our secret"):
        greet(6, 5, lower)


def test_PS_720_the_proof_has_the_range_as_its_hello_has_it():
    dialler, listener = greet(6, 5)
    ours = (6, "consumer", "consumer~1", NONCES[0], False, "", 5)
    theirs = (5, "leader", "leader~1", NONCES[1], False, "", 4)
    body = msgspec.msgpack.encode(("gapless proof", True, *ours, *theirs))
    assert Greeting._proof(SECRET, True, dialler.mine, listener.mine) == hmac.digest(SECRET, body, "sha256")


def test_PS_720_packets_of_this_version_have_the_bytes_of_before():
    packet = Packet("c1~1/1", "leader", 1, LeaderWanted("c1~1/1", "g", "#"))
    assert msgspec.msgpack.decode(body_of(PacketCodec(LeaderWanted).encode(packet))) == [
        "c1~1/1", "leader", 1, ["leader_wanted", "c1~1/1", "g", "#"],
    ]  # fmt: skip
