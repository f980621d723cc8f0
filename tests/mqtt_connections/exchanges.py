"""Exchanges: what MQTT clients send and what nodes answer, as text; conftest.py collects the files `exchanges/*.txt`.

    MQ-100 A message that a group matches is appended, and another is not.
    groups
    w PUBLISH jobs/1 early -> 0x10
    m SUBSCRIBE $share/g/jobs/#
    w PUBLISH jobs/1 one => m
    streams jobs/1=1

Blank lines part blocks.  The first line of a block is its title, and the block a test.  The lines of the first block
stand before those of each other; `opening NAME` is played where a line is `play NAME`.

A client `c` sends a packet, which has the fields of the codec: in their order, or as `name=value`.  It connects first
if it has not, with a session that is kept.  `c.4`: of MQTT 3.1.1; `c@b`: at node b; `c'`: another of its client id.
QoS is 1 unless it is said.  `+ PUBLISH ...` leaves with the next packet of the client, in one piece.  Behind `->`
stands the answer: its codes (`5/3`: the one of MQTT 5, and that of 3.1.1), `later` for none yet, or `ends` with the
code of DISCONNECT.  What is not said is success.  `=> m n`: these get the message, and acknowledge it; words behind
them are as behind `<`.  Further steps of the client stand behind `; `.

    c raw 30 ff          bytes               c open          a connection without CONNECT, as for `c stranger raw`
    c unheard            no byte has come
    c lost, c leaves     it ends             c again         connects to its session, which is there
    c silent             nothing has come    c ends 0x8e     the node ends the connection
    m < TOPIC PAYLOADS   messages of that topic, acknowledged, or `unanswered`, or answered with `code=0x80`
    m < SUBACK 1 0x80    a packet; `$`: the packet id of the last message

In a word `{ab*3}` is `ababab`.  A line with `{1..3}` or `{a b}` is played
for each number or word.  At the end nothing else may
have come to any client.  All other lines begin with a method of `Scene`.

A client of raw bytes, nodes that it connects to, and members of quick groups, for tests.
"""

import asyncio
import contextlib
import re
import sqlite3
from ast import literal_eval
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import fields, replace
from waiting import pause_async, turns, until_async

from statemachines import mqtt_codec
from statemachines import mqtt_codec as codec
from statemachines.drivers.mqtt_connections import MqttNode, PasswordFile
from statemachines.drivers.password_file import hash_password
from statemachines.drivers.permission_file import PermissionFile
from statemachines.drivers.persistent_sessions import SessionNode
from statemachines.drivers.persistent_sessions.group_host import GroupHost
from statemachines.drivers.shared_subscriptions.open_stores import open_stores
from statemachines.mqtt_codec import ConnackPacket, ConnectPacket, Decoder, MqttVersion, encode
from statemachines.mqtt_connections.connection_record import MqttSettings
from statemachines.persistent_sessions.times import Times
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.stream_store import ListStreams, stream_id
from statemachines.testing.process_harness import free_port

QUICK = {"lease_ms": 10_000, "look_ms": 100, "times": Times(marker_ms=400, repeat_ms=100)}
"""A loop that stands still on a busy machine keeps its lease."""
MQTT_SOCKET_KEPT = mqtt_codec.PacketProperties(session_expiry=100)
TIMES = Configuration(
    find_leader_ms=50, ping_interval_ms=100, ping_timeout_ms=1_000, validity_ms=1_800, max_delay_ms=200,
    unsubscribe_timeout_ms=1_000, resend_interval_ms=100, renew_streams_ms=50, revoke_timeout_ms=2_000,
    claim_ttl_ms=1_500, claim_heartbeat_ms=400, commit_interval_ms=50, idle_stop_ms=10_000,
)  # fmt: skip


@asynccontextmanager
async def mqtt_node(store, name="a", node_options=None, **given):
    async with (
        SessionNode(store, name=name, **(QUICK | (node_options or {}))) as node,
        MqttNode(node, **{"listen": ("127.0.0.1", 0), **given}) as mqtt,
    ):
        yield mqtt


@asynccontextmanager
async def linked_nodes(store, options, **given):
    """Two nodes that have dialled each other, with these options of nodes of sessions."""
    places = {name: ("127.0.0.1", free_port()) for name in "ab"}
    async with contextlib.AsyncExitStack() as stack:
        nodes = []
        for name, place in places.items():
            own = {"listen": place, "peers": [*{*places.values()} - {place}], **options}
            nodes.append(await stack.enter_async_context(mqtt_node(store, name, own, **given)))
        await until_async(lambda: all(len(one._node._transport._peers) == 2 for one in nodes))
        yield nodes


class MqttSocket:
    """Packets of either side, over TCP."""

    def __init__(self, address, version=5):
        self.address = address
        self.version = MqttVersion(version)
        self._decoder = Decoder(version)
        self._packets = []

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(*self.address)
        return self

    async def __aexit__(self, *_):
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def send(self, packet):
        self.writer.write(encode(packet, self.version))

    async def read(self):
        """The next packet; None: the server has closed the connection."""
        while not self._packets:
            data = await self.reader.read(65_536)
            if not data:
                return None
            self._packets += self._decoder.feed(data)
        return self._packets.pop(0)

    async def ask(self, packet):
        self.send(packet)
        return await self.read()

    async def connect(self, client_id="c", **fields):
        connack = await self.ask(ConnectPacket(client_id, self.version, **fields))
        assert isinstance(connack, ConnackPacket)
        return connack


async def count_streams(store):
    """Topic -> how many messages its stream has."""
    groups, streams = open_stores(store)
    try:
        (listed,) = await streams.ask(ListStreams(1, "#", 0, "", 1_000))
        return {one.stream.partition("/")[2]: one.count for one in listed.streams}
    finally:
        await groups.close()
        await streams.close()


CLIENT = re.compile(r"([a-z]\w*)((?:'\w*)?)(\.4)?(?:@(\w))?$")
KINDS = {name[:-6].upper(): kind for name, kind in vars(codec).items() if name.endswith("Packet") and "Mal" not in name}
ANSWERS = {
    "CONNECT": "CONNACK", "SUBSCRIBE": "SUBACK", "UNSUBSCRIBE": "UNSUBACK", "PUBREC": "PUBREL", "PUBREL": "PUBCOMP",
    "PINGREQ": "PINGRESP",
}  # fmt: skip
WORDS = {"raw", "open", "lost", "leaves", "again", "silent", "unheard", "ends", "<", "stranger"}
SHOWN = re.compile(r" (->(?! later$)|=>|<|ends|silent|unheard|again)( |$)|^(log|streams|stored)\b", re.MULTILINE)
PROPERTIES = {one.name for one in fields(codec.PacketProperties)}
OPTIONS = [one.name for one in fields(codec.TopicSubscription)][2:]
SETTINGS = {one.name for one in fields(MqttSettings)}
KEPT = {"clean_start": False, "session_expiry": 100}
OF_WILLS = {"will_delay", "content_type"}
TYPES = {
    one.name: str(one.type).partition("PropertyForm")[0]
    for kind in (*KINDS.values(), codec.PacketProperties, codec.TopicSubscription)
    for one in fields(kind)
}


class ExchangeError(ValueError):
    """A text that cannot be played, or would test nothing."""


def read_blocks(text):
    """(title, lines) of each test, with all that is played before its own: one step a line."""
    head, *blocks = [[one for one in block.splitlines() if one[0] != "#"] for block in text.strip().split("\n\n")]
    openings = {title[8:]: lines for title, *lines in blocks if title.startswith("opening ")}
    titles, left = {""}, set(openings)
    for title, *lines in [one for one in blocks if not one[0].startswith("opening ")]:
        left -= {line[5:] for line in lines}
        played = [one for line in lines for one in (openings[line[5:]] if line.startswith("play ") else [line])]
        steps = [step for line in (*head, *played) for step in list_steps(line)]
        if title in titles or title[0].islower() or not SHOWN.search("\n".join(steps)):
            raise ExchangeError(f"{title!r} is there twice, is no title, or expects nothing")
        titles.add(title)
        yield title, steps
    if left:
        raise ExchangeError(f"nothing plays {left}")


def list_steps(line):
    """The steps of a line, each for each of its numbers or words."""
    first, rest = re.match(r"((?:\{.*?\}|\S)+) ?(.*)", line).groups()
    if hasattr(Scene, f"do_{first}"):
        return [line]
    steps = [(first, *one.split()) for one in rest.split("; ")]
    for one in steps:
        if not ((one[1:2] and one[1] in WORDS) or {*one[1:3]} & KINDS.keys()):
            raise ExchangeError(f"{one!r} is no step of a client")
    return [one for step in steps for one in repeat_step(" ".join(step))]


def repeat_step(step):
    found = re.search(r"\{(\d+)\.\.(\d+)\}|\{([^{}*]+)\}", step)
    if not found:
        return [step]
    words = found[3].split() if found[3] else range(int(found[1]), int(found[2]) + 1)
    return [one for word in words for one in repeat_step(step.replace(found[0], str(word)))]


def read_value(name, text):
    """The value of a field."""
    known = TYPES[name]
    if "tuple[tuple" in known:
        return tuple(tuple(pair.split(":")) for pair in text.split(","))
    if "tuple" in known:
        return tuple(one if "str" in known else int(one, 0) for one in text.split(","))
    return text.encode() if "bytes" in known else text if "str" in known else int(text, 0)


def read_options(words):
    return {name: literal_eval(value) for name, _, value in (one.partition("=") for one in words)}


def read_fields(words, names=()):
    """Values of fields, properties among them: words without a name are those of the next of `names`."""
    positions, given = iter(names), {}
    for word in words:
        name, equal, value = word.partition("=")
        if word in TYPES:
            given[word] = True
        elif equal and name in TYPES:
            given[name] = read_value(name, value)
        else:
            name = next(positions)
            given[name] = read_value(name, word)
    return given


def build(kind, given, version=5):
    """A packet, or a will, of these fields and properties."""
    own = {name: given[name] for name in PROPERTIES & given.keys() if version == 5}
    held = {"properties": codec.PacketProperties(**own)} if own else {}
    return kind(**{name: value for name, value in given.items() if name not in PROPERTIES}, **held)


class Client(MqttSocket):
    """`name`: its client id; `last_id`: packet id of the last message; `words`: of its last CONNECT."""

    def __init__(self, address, version, name, words):
        super().__init__(address, version)
        self.name, self.words, self.last_id, self.held, self.is_served, self.is_over = name, words, 0, b"", False, False
        self._ids = count(1)

    def make_packet(self, kind, words):
        """The packet that the words say."""
        words, given = [str(self.last_id) if one == "$" else one for one in words], {}
        if kind == "CONNECT":
            self.words = words
            plain = [one for one in words if one not in ("kept", "retain") and not one.startswith("will=")]
            given = (
                {"client_id": self.name, "version": self.version}
                | (KEPT if "kept" in words else {})
                | read_fields(plain)
            )
            of_will = {name: given.pop(name) for name in OF_WILLS & given.keys()}
            for word in [one for one in words if one.startswith("will=")]:
                topic, payload, qos = f"{word[5:]}:0".split(":")[:3]
                of_will |= {"topic": topic, "payload": payload.encode(), "qos": int(qos), "retain": "retain" in words}
                given["will"] = build(codec.WillMessage, of_will)
        elif kind in ("SUBSCRIBE", "UNSUBSCRIBE"):
            filters = [one for one in words if "=" not in one and one not in TYPES]
            given = {"packet_id": next(self._ids)} | read_fields([one for one in words if one not in filters])
            options = {name: given.pop(name) for name in OPTIONS if name in given}
            pairs = [f"{one}:1".split(":")[:2] for one in filters]
            made = [codec.TopicSubscription(one, int(qos), **options) for one, qos in pairs]
            given |= {"subscriptions": tuple(made)} if kind == "SUBSCRIBE" else {"filters": tuple(filters)}
        else:
            names = [one.name for one in fields(KINDS[kind])]
            given = read_fields([words[0], ",".join(words[1:])] if "reason_codes" in names else words, names)
        if kind == "PUBLISH":
            given = {"qos": 1} | given
            given = {"packet_id": next(self._ids) if given["qos"] else 0} | given
        return build(KINDS[kind], given, self.version)

    def make_answer(self, kind, packet, codes):
        """What answers a packet by these codes, or else says that all is well; None: nothing does."""
        if kind == "SUBSCRIBE":
            return codec.SubackPacket(packet.packet_id, codes or tuple(one.qos for one in packet.subscriptions))
        if kind == "UNSUBSCRIBE":
            return codec.UnsubackPacket(packet.packet_id, (codes or (0,) * len(packet.filters)) * (self.version == 5))
        name = ANSWERS.get(kind) if kind != "PUBLISH" else (None, "PUBACK", "PUBREC")[packet.qos]
        given = (packet.packet_id, *codes)[: self.version - 3] if hasattr(packet, "packet_id") else ()
        return KINDS[name](*given) if name else None

    async def check_answer(self, kind, packet, words, takes_messages=False):
        """What comes is the answer; messages that come before it may be read later."""
        codes = tuple(int(one.split("/")[-(self.version == 4)], 0) for one in words if one[0].isdigit())
        if words == ["later"]:
            return
        if words[:1] == ["ends"]:
            await self.check_end(codes)
        elif kind == "CONNECT":
            found = await self.read()
            assert (type(found), found.reason_code) == (codec.ConnackPacket, *(codes or [0])), found
            assert not words or found.session_present is ("present" in words), found
            for name, value in read_fields([one for one in words if "=" in one]).items():
                assert getattr(found.properties, name) == value, found
            self.is_served = not found.reason_code
            await (self.check_end(()) if found.reason_code else turns())
        else:
            is_said = words[:1] and words[0] in KINDS
            one = self.make_packet(words[0], words[1:]) if is_said else self.make_answer(kind, packet, codes)
            assert one is None or await (self.take(type(one)) if takes_messages else self.read()) == one

    async def take(self, kind):
        """The next packet of a kind; those before it are read later."""
        passed = []
        while type(found := await self.read()) is not kind:
            assert found, passed
            passed.append(found)
        self._packets[:0] = passed
        return found

    async def check_messages(self, topic, *words):
        """Messages of a topic with these payloads come, and are answered."""
        named = [one for one in words if "=" in one or one in TYPES]
        given = {"qos": 1} | read_fields([one for one in named if not one.startswith("code=")])
        codes = [int(one[5:], 0) for one in named if one.startswith("code=")]
        for payload in [one for one in words if one not in (*named, "unanswered")] or [""]:
            found = await self.read()
            self.last_id, left = found.packet_id, found.properties.message_expiry
            assert (left or 0) <= given.get("message_expiry", 0), found
            own = {"topic": topic, "payload": payload.encode(), "packet_id": self.last_id, "message_expiry": left}
            assert found == build(codec.PublishPacket, given | own)
            if found.qos == 1 and "unanswered" not in words:
                self.send(codec.PubackPacket(self.last_id, *codes))

    async def check_end(self, codes):
        """The node ends the connection, by DISCONNECT with this code."""
        if codes and self.version == 5:
            assert await self.read() == codec.DisconnectPacket(*codes)
        with contextlib.suppress(ConnectionError):
            assert await self.read() is None
        await self.end()

    async def end(self):
        """Of the connection."""
        self.is_over = True
        await self.__aexit__()


class Scene:
    """Nodes and clients of a block.  A method `do_x` plays a line that begins with `x`."""

    def __init__(self, version, folder, patch, stack, log, nodes=()):
        self.version, self.folder, self.patch, self.stack, self.log = version, folder, patch, stack, log
        self.store, self.nodes, self.clients, self.hashes = str(folder / "s.db"), dict(nodes), {}, {}
        self.given, self.options = {}, {}

    async def do_node(self, *words):
        """Options of nodes that begin later: settings, and those of `MqttNode` and `SessionNode`."""
        given = read_options(words)
        settings = {name: given.pop(name) for name in SETTINGS & given.keys()}
        self.given |= {"settings": MqttSettings(**settings)} if settings else {}
        self.given |= {name: given.pop(name) for name in {"allows_anonymous"} & given.keys()}
        self.options |= given

    async def do_groups(self, *words):
        """Nodes have groups, configured so."""
        given = read_options(words)
        own = {name: given.pop(name) for name in {"expiry_s"} & given.keys()}
        host = GroupHost(self.store, configuration=replace(TIMES, **given), **own)
        self.options["groups"] = (await self.stack.enter_async_context(host)).groups

    async def do_users(self, *pairs):
        """The file of users, `name:password` each."""
        self.hashes |= {one: hash_password(*one.split(":")) for one in pairs if ":" in one and one not in self.hashes}
        self.write_file("users", self.given, PasswordFile, [self.hashes.get(one, one) for one in pairs])

    async def do_rights(self, *words):
        """The file of permissions; `|` parts its lines."""
        self.write_file("authorize", self.options, PermissionFile, " ".join(words).split(" | "))

    def write_file(self, name, options, kind, lines):
        """Nodes read it, again if they have."""
        path = self.folder / name
        path.touch(0o600)
        path.write_text("\n".join(lines) + "\n")
        if name not in options:
            options[name] = kind(path)
        for node in self.nodes.values():
            node.reload()

    async def do_set(self, name, value):
        """A constant of a module."""
        module, _, name = name.rpartition(".")
        self.patch.setattr(import_module(f"statemachines.{module}"), name, literal_eval(value))

    async def do_log(self, number, *words):
        """So many lines of the log have these words."""
        await until_async(lambda: sum(" ".join(words) in one.getMessage() for one in self.log) >= int(number))
        assert sum(" ".join(words) in one.getMessage() for one in self.log) == int(number), self.log

    async def do_streams(self, *pairs):
        """Topics of streams, and how many messages each has."""
        assert await count_streams(self.store) == read_options(pairs)

    async def do_end(self, topic):
        """Nothing may be appended to the topic's stream any more."""
        groups, streams = open_stores(self.store)
        await streams.end(stream_id(topic, 4, 0))
        await groups.close()
        await streams.close()

    async def do_linked(self):
        """Nodes a and b have dialled each other."""
        nodes = linked_nodes(self.store, self.options, **self.given)
        self.nodes |= zip("ab", await self.stack.enter_async_context(nodes), strict=True)

    async def do_stored(self, number):
        """So many messages are in the database."""
        with contextlib.closing(sqlite3.connect(self.store)) as database:
            assert database.execute("SELECT count(*) FROM messages").fetchone() == (int(number),)

    async def do_wait(self, seconds):
        """For something to happen that nobody is told of."""
        await pause_async(float(seconds), "the text says so")

    async def do_stop(self, name):
        """The node stops."""
        await self.nodes[name].stack.aclose()

    async def do_both(self, *words):
        """`versions`: the block is played with either (`play_block`)."""

    async def do_everybody(self, *words):
        """`is silent`: nothing else has come to any client that is connected."""
        for client in [one for one in self.clients.values() if one.is_served and not one.is_over]:
            await self.talk(client, "silent", [], [], [])

    async def find_client(self, word, verb):
        """A client, which connects if it has not."""
        name, quotes, old, node = CLIENT.match(word).groups()
        before = self.clients.get(name + quotes)
        if before and not before.is_over and verb != "again":
            return before
        if before:
            await before.end()
        node = node or (before.node if before else "a")
        if node not in self.nodes:
            stack = await self.stack.enter_async_context(contextlib.AsyncExitStack())
            begun = mqtt_node(self.store, node, self.options, **self.given)
            self.nodes[node] = await stack.enter_async_context(begun)
            self.nodes[node].stack = stack
        version = 4 if old else before.version if before else self.version
        client = Client(self.nodes[node].address, version, name, before.words if before else ["kept"])
        self.clients[name + quotes], client.node = client, node
        self.stack.push_async_exit(await client.__aenter__())
        if verb not in ("CONNECT", "stranger", "open", "again"):
            await self.talk(client, "CONNECT", client.words, [], [])
        return client

    async def play(self, *lines):
        """Lines of a text."""
        for step in [step for line in lines for step in list_steps(line)]:
            try:
                await self.play_step(step)
            except Exception as error:
                error.add_note(f"in the step: {step}")
                raise

    async def play_step(self, step):
        """What a client, or a method, does."""
        step = re.sub(r"\{([^}]+?)\*(\d+)\}", lambda found: found[1] * int(found[2]), step)
        first, *words = step.split()
        if hasattr(self, f"do_{first}"):
            await getattr(self, f"do_{first}")(*words)
            return
        step, _, takers = step.partition(" => ")
        step, _, answer = step.partition(" -> ")
        _, verb, *words = [re.sub(r"\\x(..)", lambda found: chr(int(found[1], 16)), one) for one in step.split()]
        await self.talk(await self.find_client(first, verb), verb, words, answer.split(), takers.split())

    async def talk(self, client, verb, words, answer, takers):
        """What a client does, and what follows."""
        match verb:
            case "<" if words[0] in KINDS:
                assert await client.take(KINDS[words[0]]) == client.make_packet(words[0], words[1:])
            case "<":
                await client.check_messages(*words)
            case "silent":
                assert await client.ask(codec.PingreqPacket()) == codec.PingrespPacket()
            case "unheard":
                assert (client.reader._buffer, client.reader.at_eof()) == (b"", False)
            case "ends":
                await client.check_end([int(one, 0) for one in words])
            case "lost":
                await client.end()
            case "leaves":
                client.send(codec.DisconnectPacket(*[int(one, 0) for one in words]))
                await client.check_end(())
            case "again":
                await self.talk(client, "CONNECT", [*client.words, "clean_start=0"], ["present"], [])
            case "+":
                client.held += codec.encode(client.make_packet(words[0], words[1:]), client.version)
            case "raw" | "stranger":
                data = [one[1:].encode() if one[0] == "'" else bytes.fromhex(one) for one in words if one != "raw"]
                client.writer.write(b"".join(data))
                await client.check_answer("", None, answer or ["later"])
            case _ if verb in KINDS:
                packet = client.make_packet(verb, words)
                client.writer.write(client.held + codec.encode(packet, client.version))
                client.held = b""
                named = [one for one in takers if one not in self.clients]
                own = [self.clients[one] for one in takers if one in self.clients]
                await client.check_answer(verb, packet, answer, client in own)
                for one in own:
                    await one.check_messages(packet.topic, packet.payload.decode(), f"qos={packet.qos}", *named)


@contextlib.asynccontextmanager
async def open_scene(folder, version=5, log=(), nodes=()):
    """A `Scene` in a folder; in the end nothing else has come to any client."""
    with pytest.MonkeyPatch.context() as patch:
        async with contextlib.AsyncExitStack() as stack:
            scene = Scene(version, folder, patch, stack, log, nodes)
            yield scene
            await scene.play("everybody is silent")


async def play_block(steps, log):
    """With each of its versions."""
    for version in (4, 5) if "both versions" in steps else (5,):
        log.clear()
        with TemporaryDirectory() as folder:
            async with open_scene(Path(folder), version, log) as scene:
                await scene.play(*steps)
