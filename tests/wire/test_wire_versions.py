"""Versions of the wire: what the next one may add, and what this one says to a peer of another version.

docs/wire.md: its tables are the declarations, its bytes are those that nodes write, and its listing runs.

Frames: whole ones come through, however they are cut; everything else is a FrameError.
"""

import hmac
import json
import random
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from struct import pack
from typing import get_args
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_tables import describe_fields, plain_json, shown

from statemachines import cli, wire
from statemachines.drivers.greeting import NONCE_SIZE, Greeting, Terms
from statemachines.drivers.persistent_sessions.node_messages import ClientAnswer, ClientMessage, NodeMessage
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.kernel import name_of
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import EpochRows
from statemachines.shared_subscriptions.message import (
    BorrowerMessage,
    Grant,
    LeaderMessage,
    LeaderWanted,
    Ping,
    Relayed,
    Report,
    UpdateProgress,
)
from statemachines.wire import (
    OLDEST,
    VERSION,
    FrameError,
    Frames,
    Hello,
    Packet,
    PacketCodec,
    decode_hello,
    encode_hello,
    frame,
    frame_hello,
    hello_of,
    refusal_in,
)

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
SECTIONS = {
    "## Shared subscriptions: a member to its leader": BorrowerMessage,
    "## Shared subscriptions: a leader to its member": LeaderMessage,
    "## Shared subscriptions: through a follower": Relayed,
    "## Persistent sessions: a client to its node": ClientMessage,
    "## Persistent sessions: a node to its client": ClientAnswer,
    "## Persistent sessions: a node to another": NodeMessage,
}


def section(title):
    return PAGE[PAGE.index(title) :].split("\n## ", 1)[0]


def pairs(text, kind="text"):
    """(JSON, bytes) of the listings of this kind."""
    found = re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)
    lines = [line for listing in found for line in listing.splitlines()]
    return [(one, bytes.fromhex(two)) for one, two in zip(lines[::2], lines[1::2], strict=True)]


def body_of_of_wire_page(data):
    (body,) = Frames().feed(data)
    return bytes(body)


def json_of(data):
    return msgspec.json.encode(shown(msgspec.msgpack.decode(data))).decode()


@pytest.mark.parametrize("title", SECTIONS)
def test_a_table_has_every_message_with_its_fields(title):
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section(title), re.MULTILINE)
    assert rows == [(name_of(kind), describe_fields(kind)) for kind in get_args(SECTIONS[title])]


@pytest.mark.parametrize("title", SECTIONS)
def test_every_message_has_an_example_that_is_read_and_written_so(title):
    union = SECTIONS[title]
    examples = pairs(section(title))
    read = [msgspec.msgpack.decode(data, type=union) for _, data in examples]
    assert [type(one) for one in read] == list(get_args(union))
    assert [plain_json(one) for one in read] == [text for text, _ in examples]
    assert [msgspec.msgpack.encode(one) for one in read] == [data for _, data in examples]


@pytest.mark.parametrize("kind", [Report, Queued, EpochRows], ids=name_of)
def test_what_stands_in_messages_has_its_fields(kind):
    said = re.search(rf"\*{name_of(kind)}\*[^`]*(?:`\[[^`]*`: )?(`.*?)\.?(?: \|)?\n", PAGE)[1]
    assert said == describe_fields(kind)


def test_the_hello_and_the_refusal_are_what_nodes_write():
    ((text, data),) = pairs(PAGE, "hello")
    hello = decode_hello(body_of_of_wire_page(data), CONSUMER.full_name)
    assert json_of(body_of_of_wire_page(data)) == text
    assert encode_hello(hello.role, hello.life, store=hello.store) == data
    ((text, data),) = pairs(PAGE, "refusal")
    assert json_of(body_of_of_wire_page(data)) == text
    assert refusal_in(body_of_of_wire_page(data)) == msgspec.json.decode(text)[1]


def test_the_proofs_are_those_of_the_greeting():
    listings = pairs(PAGE, "proof")
    secret = re.search(r"With the secret `(\w+)`", PAGE)[1].encode()
    dialler, listener = bytes(range(NONCE_SIZE)), bytes(range(NONCE_SIZE, 2 * NONCE_SIZE))
    consumer = hello_of(CONSUMER.full_name, "consumer-1~3", nonce=dialler, store="4f0c")
    leader = hello_of(LEADER.full_name, "leader-1~9", nonce=listener, store="4f0c")
    accepts = Greeting(leader, CONSUMER.full_name, dialled=False, terms=Terms((secret,)))
    accepts.feed(msgspec.msgpack.encode(consumer))
    assert body_of_of_wire_page(accepts.feed(msgspec.msgpack.encode(listings[0][1]))) == msgspec.msgpack.encode(
        listings[1][1]
    )
    assert accepts.done
    for text, proof in listings:
        said = [bytes.fromhex(one["hex"]) if isinstance(one, dict) else one for one in msgspec.json.decode(text)]
        assert hmac.digest(secret, msgspec.msgpack.encode(said), "sha256") == proof


def test_the_packet_is_what_nodes_read():
    ((text, data),) = pairs(PAGE, "packet")
    assert json_of(body_of_of_wire_page(data)) == text
    packet = LEADER.codec().decode(body_of_of_wire_page(data))
    assert frame(msgspec.msgpack.encode((packet.sender, packet.to, packet.msg, packet.message))) == data


def test_the_listing_is_tested_and_fails_as_the_page_says(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_member.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1])
    monkeypatch.chdir(tmp_path)
    command = re.search(r"^    gapless (conform borrower --listen .*)$", PAGE, re.MULTILINE)[1].split()
    command[command.index("python")] = sys.executable
    assert cli.run(command) == 1
    said = capsys.readouterr().out
    for line in re.search(r"```text\n(fail.*?)```", section("## Test it"), re.DOTALL)[1].splitlines():
        assert re.sub(r"\s+", " ", line) in re.sub(r"[ \t]+", " ", said)


@pytest.mark.parametrize("title", ["### A leader", "### The owner of a session"])
def test_the_command_that_tests_a_shipped_node_passes(title, capsys):
    part = PAGE[PAGE.index(title) :].split("\n##", 1)[0]
    words = re.search(r"^    gapless (conform .*)$", part, re.MULTILINE)[1].split()
    place = words.index("--") + 1
    assert words[place] == "gapless"
    words[place : place + 1] = [sys.executable, "-m", "statemachines"]
    assert cli.run([*words[: place - 1], "--tolerance", "30", *words[place - 1 :]]) == 0
    assert re.search(r"```text\n(pass.*?)```", part, re.DOTALL)[1] in capsys.readouterr().out


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


FUZZED = 20_000
BORROWERS = PacketCodec(BorrowerMessage)
LEADERS = PacketCodec(LeaderMessage)

reports = st.builds(Report, st.text(), st.integers(0, 2**62), st.integers(0, 2**63 - 1), st.booleans())
messages = st.one_of(
    st.builds(LeaderWanted, st.text(), st.text(), st.text()),
    st.builds(
        Ping,
        st.text(),
        st.integers(0, 2**62),
        st.integers(0, 2**62),
        st.integers(0, 2**62),
        st.lists(reports, max_size=4).map(tuple),
    ),
)
packets = st.builds(Packet, st.text(), st.text(), st.integers(0, 2**62), messages)


@given(st.lists(packets, max_size=6), st.data())
def test_packets_come_through_however_the_bytes_are_cut(sent, data):
    stream = b"".join(BORROWERS.encode(packet) for packet in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    frames, received = Frames(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += [BORROWERS.decode(body) for body in frames.feed(stream[begin:end])]
    assert received == sent


def test_a_frame_too_large_is_refused_before_it_has_arrived():
    with pytest.raises(FrameError, match="4294967295 bytes; at most 1048576"):
        list(Frames().feed(b"\xff\xff\xff\xff"))
    with pytest.raises(FrameError, match="at most 10 are allowed"):
        frame(b"x" * 11, 10)


def test_a_message_of_the_other_role_is_refused_by_name():
    grant = LEADERS.encode(Packet("l", "b", 1, Grant("b", 1, 1, "s", 1, 0)))[4:]
    with pytest.raises(FrameError, match=r"not taken here.*grant.*taken are disconnect, leader_wanted, ping"):
        BORROWERS.decode(grant)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x94\xa1a\xa1b\x01", msgspec.msgpack.encode(["a", "b", 1, []])])
def test_what_is_no_packet_is_refused(body):
    with pytest.raises(FrameError):
        BORROWERS.decode(body)


@pytest.mark.parametrize("msg", [-1, 2**63, 2**64 - 1, True, 1.0, "1"])
def test_the_number_of_a_message_fits_into_a_trace(msg):
    with pytest.raises(FrameError, match=r"\$\[2\]"):
        BORROWERS.decode(msgspec.msgpack.encode(["a", "b", msg, ["leader_wanted", "a", "g", "f"]]))


@pytest.mark.parametrize("number", [-1, 2**63, 2**64 - 1, True])
def test_the_numbers_in_a_message_fit_into_a_trace_too(number):
    ping, report = ["ping", "b", 1, 2, 4, []], ["s", 1, 2, False]
    wrong = [[*ping[:at], number, *ping[at + 1 :]] for at in (2, 4, 4)]
    wrong += [[*ping[:5], [[*report[:at], number, *report[at + 1 :]]]] for at in (1, 2)]
    for message in wrong:
        with pytest.raises(FrameError, match="not taken here"):
            BORROWERS.decode(msgspec.msgpack.encode(["a", "b", 1, message]))
    assert BORROWERS.decode(msgspec.msgpack.encode(["a", "b", 1, [*ping[:5], [report]]]))


@pytest.mark.parametrize("name", ["two\nlines\x1b[2J", "x" * 900_000])
def test_what_a_peer_says_is_repeated_in_one_short_line(name):
    with pytest.raises(FrameError) as refused:
        BORROWERS.decode(msgspec.msgpack.encode(["a", "b", 1, [name]]))
    text = str(refused.value)
    assert text.isprintable()
    assert len(text) < 500
    assert name[:3] in text


@pytest.mark.parametrize("message", [LeaderWanted("c", "g", "\ud800"), Ping("c", 2**64, 1, 1)])
def test_a_message_that_cannot_be_written_is_refused_here(message):
    with pytest.raises(FrameError, match="that cannot be written"):
        BORROWERS.encode(Packet("c", "l", 1, message))


def test_a_frame_may_come_byte_by_byte():
    packet = Packet("c", "l", 1, LeaderWanted("c", "g", "f" * 1_000))
    stream, frames = BORROWERS.encode(packet) * 2, Frames()
    received = [BORROWERS.decode(body) for byte in stream for body in frames.feed(bytes([byte]))]
    assert received == [packet, packet]


def test_bytes_after_a_packet_are_refused():
    body = BORROWERS.encode(Packet("a", "b", 1, LeaderWanted("a", "g", "f")))[4:]
    with pytest.raises(FrameError):
        BORROWERS.decode(body + b"\x00")


def test_a_hello_says_who_speaks():
    hello = decode_hello(encode_hello("locks/consumer", "c1~3")[4:], "locks/consumer")
    assert (hello.node, hello.life, hello.number) == ("c1", "c1~3", 3)
    hello = decode_hello(encode_hello("locks/consumer", "c1~3.00000000000000ff")[4:], "locks/consumer")
    assert (hello.node, hello.number) == ("c1", 3)


@pytest.mark.parametrize(
    ("hello", "says"),
    [
        (
            Hello("gapless", 4, "locks/leader", "l~1"),
            "is a 'locks/leader'; here only a locks/consumer connects",
        ),
        (
            Hello("gapless", 2, "locks/consumer", "c~1"),
            "version 2 of the wire, and this node speaks 4; upgrade that one",
        ),
        (Hello("gapless", 1, "consumer", "c~1"), "version 1 of the wire"),
        (Hello("gapless", 4, "locks/consumer", "c~1.ff"), "not the life of a node"),
        (Hello("gapless", 4, "locks/consumer", "c~1.0000000000000000"), "not the life of a node"),
        (Hello("gapless", 4, "locks/consumer", "c~1.00000000000000ff00"), "not the life of a node"),
        (Hello("http", 2, "consumer", "c~1"), "not a gapless node"),
        (Hello("gapless", 4, "locks/consumer", "c"), "not a hello"),
        (Hello("gapless", 4, "locks/consumer", "a b~1"), "not a hello"),
        (Hello("gapless", 4, "locks/consumer", "c~-1"), "not the life of a node"),
        (Hello("gapless", 4, "locks/consumer", "c~ 1"), "not the life of a node"),
        (Hello("gapless", 4, "locks/consumer", "c~1_0"), "not the life of a node"),
        (Hello("gapless", 4, "locks/consumer", "c~1~2"), "not a hello"),
        ("GET / HTTP/1.1", "not a hello"),
    ],
)
def test_another_hello_is_refused(hello, says):
    with pytest.raises(FrameError, match=says):
        decode_hello(msgspec.msgpack.encode(hello), "locks/consumer")


def mutated(chance, body):
    body = bytearray(body)
    for _ in range(chance.randint(1, 6)):
        match chance.randrange(4):
            case 0 if body:
                body[chance.randrange(len(body))] = chance.randrange(256)
            case 1 if body:
                del body[chance.randrange(len(body))]
            case 2:
                body.insert(chance.randint(0, len(body)), chance.randrange(256))
            case _:
                body = bytearray(chance.randbytes(chance.randint(0, 40)))
    return bytes(body)


def test_fuzzed_frames_raise_nothing_but_frame_errors():
    chance = random.Random(20)
    good = [
        BORROWERS.encode(Packet("c1~1/1", "l~1/1", 7, Ping("c1~1/1", 1, 2, 4, (Report("s", 1, 2, True),)))),
        BORROWERS.encode(Packet("c1~1/1", "leader", 8, LeaderWanted("c1~1/1", "g", "#"))),
        encode_hello("locks/consumer", "c1~1"),
    ]
    refused = 0
    for number in range(FUZZED):
        data = mutated(chance, good[number % 3])
        try:
            for body in Frames().feed(data):
                decode_hello(body, "locks/consumer") if number % 3 == 2 else BORROWERS.decode(body)
        except FrameError:
            refused += 1
    assert refused > FUZZED / 4


def test_deep_nesting_is_refused():
    with pytest.raises(FrameError):
        BORROWERS.decode(b"\x91" * 100_000)
    with pytest.raises(FrameError):
        list(Frames(100).feed(pack(">I", 101)))
