"""docs/wire.md: its tables are the declarations, its bytes are those that nodes write, and its listing runs."""

from __future__ import annotations

import hmac
import re
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from message_tables import describe_fields, plain_json, shown

from statemachines import cli
from statemachines.drivers.greeting import NONCE_SIZE, Greeting, Terms
from statemachines.drivers.persistent_sessions.node_messages import ClientAnswer, ClientMessage, NodeMessage
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.kernel import name_of
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import EpochRows
from statemachines.shared_subscriptions.message import BorrowerMessage, LeaderMessage, Relayed, Report
from statemachines.wire import Frames, decode_hello, encode_hello, frame, hello_of, refusal_in

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


def body_of(data):
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
    hello = decode_hello(body_of(data), CONSUMER.full_name)
    assert json_of(body_of(data)) == text
    assert encode_hello(hello.role, hello.life, store=hello.store) == data
    ((text, data),) = pairs(PAGE, "refusal")
    assert json_of(body_of(data)) == text
    assert refusal_in(body_of(data)) == msgspec.json.decode(text)[1]


def test_the_proofs_are_those_of_the_greeting():
    listings = pairs(PAGE, "proof")
    secret = re.search(r"With the secret `(\w+)`", PAGE)[1].encode()
    dialler, listener = bytes(range(NONCE_SIZE)), bytes(range(NONCE_SIZE, 2 * NONCE_SIZE))
    consumer = hello_of(CONSUMER.full_name, "consumer-1~3", nonce=dialler, store="4f0c")
    leader = hello_of(LEADER.full_name, "leader-1~9", nonce=listener, store="4f0c")
    accepts = Greeting(leader, CONSUMER.full_name, dialled=False, terms=Terms((secret,)))
    accepts.feed(msgspec.msgpack.encode(consumer))
    assert body_of(accepts.feed(msgspec.msgpack.encode(listings[0][1]))) == msgspec.msgpack.encode(listings[1][1])
    assert accepts.done
    for text, proof in listings:
        said = [bytes.fromhex(one["hex"]) if isinstance(one, dict) else one for one in msgspec.json.decode(text)]
        assert hmac.digest(secret, msgspec.msgpack.encode(said), "sha256") == proof


def test_the_packet_is_what_nodes_read():
    ((text, data),) = pairs(PAGE, "packet")
    assert json_of(body_of(data)) == text
    packet = LEADER.codec().decode(body_of(data))
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
