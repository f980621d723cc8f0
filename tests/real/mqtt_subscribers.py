"""Subscribers that nobody here wrote: each keeps its process, connects again by itself, and tells what it was given.

`receipts` are the messages; `presents` has an entry for each connection: whether its session was present (None: the
client does not tell).

A program of the next version of the wire: this one, with a further field in some messages.

It is a copy of the package with changed lines, so two versions talk as two releases do: each process runs one of them.

Judges of runs of MQTT: they know what PUBACKs said and what subscribers printed, and share nothing with what they
judge; the logs of the nodes are judged besides.

Clients of MQTT that publish, or speak packets of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import ssl
import subprocess
import sys
from collections import Counter, defaultdict, deque
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import statemachines
from statemachines import mqtt_codec
from statemachines.wire import VERSION
from statemachines_reports.pipeline import analyze
from tests.waiting import pause_async

NEXT = VERSION + 1
MESSAGES = "{}/message.py"
FIELDS = {
    ("Live", MESSAGES.format("persistent_sessions")): "since_ns: Instant = 0",
    ("Delivered", "persistent_sessions/message.py"): "head: Head | None = None",
    ("PublishStored", "persistent_sessions/message.py"): "n: Number",
    ("LeaveWanted", "persistent_sessions/message.py"): "expiry_ms: Expiry",
    ("Ping", MESSAGES.format("shared_subscriptions")): "reports: tuple[Report, ...] = ()",
    ("Grant", MESSAGES.format("shared_subscriptions")): "repeats: Number = 0",
    ("Report", MESSAGES.format("shared_subscriptions")): 'reason: Reason = ""',
}
"""A message and its file -> its last field, behind which the next version has one more."""
ADDED = "next"
"""What that field holds where nobody says otherwise."""


def make_next_version(folder, oldest=VERSION):
    """The words that begin a command of the next version, whose program lies in `folder`."""
    package = folder / "statemachines"
    shutil.copytree(Path(statemachines.__file__).parent, package)
    change(package / "wire.py", rf"^VERSION: Final = {VERSION}$", f"VERSION: Final = {NEXT}")
    change(package / "wire.py", rf"^OLDEST: Final = {VERSION}$", f"OLDEST: Final = {oldest}")
    for (name, file), last in FIELDS.items():
        place = rf"^(class {name}\((?:(?!^class ).)*?^    {re.escape(last)})$"
        change(package / file, place, rf'\1\n    added: str = "{ADDED}"')
    return ("env", f"PYTHONPATH={folder}", sys.executable, "-P", "-m", "statemachines")


def change(path, pattern, replacement):
    """Change the one place that matches."""
    text, count = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert count == 1, (path, pattern, count)
    path.write_text(text)


SPREAD = 1_000_000
"""A payload is the number of its topic times this, and its number within the topic."""


class MemberReceipt(NamedTuple):
    """What a member printed: its number among members, the payload, the packet id, and whether it was marked."""

    member: int
    number: int
    packet_id: int
    dup: bool


def judge(wanted, receipts, presents, sent):
    """What is wrong with what the clients saw.  The publisher was answered for all that are `wanted`.  `sent` is what
    it sent over each of its connections: what it repeated may come twice, and what it sent in another order over one
    connection may come so."""
    receipts = [one for one in receipts if one.number in wanted]
    numbers = {one.number for one in receipts}
    wrong = [f"missing: {sorted(wanted - numbers)[:10]}"] if wanted - numbers else []
    firsts = list(dict.fromkeys(one.number for one in receipts))
    moved = [(before, after) for before, after in pairwise(firsts) if after < before]
    wrong += [f"{after} came behind {before}" for before, after in moved if not was_sent_so(before, after, sent)]
    again = set(list_repeats(receipts)) - find_repeated(sent)
    if again:
        wrong.append(f"twice without a mark: {sorted(again)[:10]}")
    if not all(one is None or one for one in presents[1:]):
        wrong.append(f"session present: {presents}")
    return wrong


def was_sent_so(before, after, sent):
    """Whether the publisher sent the later number first, over one connection."""
    both = (one for one in sent if before in one and after in one)
    return any(one.index(before) < one.index(after) for one in both)


def find_repeated(sent):
    """Numbers that the publisher sent more than once."""
    counts = Counter(number for one in sent for number in one)
    return {number for number, count in counts.items() if count > 1}


def judge_trace(folder):
    """What is wrong by the logs of the nodes; they must tell of connections, each step of which is judged."""
    analysis = analyze(folder / "trace", folder / "report", spark=False)
    rows = [one for one in analysis.tables["coverage"] if one["machine"] == "mqtt_connections/mqtt_connection"]
    if len(rows) < 5 or analysis.absent:
        return [f"trace: {len(rows)} rows of connections, absent: {analysis.absent}"]
    return [f"trace: {check.name}: {check.wrong} wrong" for check in analysis.checks if not check.held]


def list_repeats(receipts):
    """Numbers that came again without a mark: the publisher has sent them again."""
    seen, repeats = set(), []
    for one in receipts:
        if one.number in seen and not one.dup:
            repeats.append(one.number)
        seen.add(one.number)
    return repeats


def judge_shared(wanted, receipts, uncertain):
    """What is wrong with what members printed, `receipts` in the order of printing.  The publisher was answered for all
    that are `wanted`; those that are `uncertain` it sent more than once."""
    members, firsts, wrong = defaultdict(set), {}, []
    for one in receipts:
        if one.number in members and one.member in members[one.number] and not one.dup | (one.number in uncertain):
            wrong.append(f"twice without a mark: {one}")
        members[one.number].add(one.member)
        firsts.setdefault(one.number, one)
    missing = sorted(wanted - set(members))
    wrong += [f"missing: {missing[:10]}"] if missing else []
    shared = sorted(one for one, its in members.items() if len(its) > 1 and one not in uncertain)
    wrong += [f"given to several: {shared[:10]}"] if shared else []
    orders = defaultdict(list)
    for one in firsts.values():
        orders[one.member, one.number // SPREAD].append(one.number)
    for its in orders.values():
        wrong += [f"{after} came behind {before}" for before, after in pairwise(its) if after < before]
    return wrong


def list_new(receipts, first):
    """The numbers behind `first` that were given, but for those that are marked as repetitions of what it had."""
    had, numbers = set(), []
    for one in receipts:
        if one.number > first and not (one.dup and (one.number, one.packet_id) in had):
            numbers.append(one.number - first)
        had.add((one.number, one.packet_id))
    return numbers


def judge_once(count, numbers):
    """What is wrong with what a subscriber was given: each of `count` once."""
    counts = Counter(numbers)
    missing = [number for number in range(1, count + 1) if not counts[number]]
    wrong = [f"missing: {missing[:10]}"] if missing else []
    twice = sorted(number for number, times in counts.items() if times > 1)
    if twice:
        wrong.append(f"twice: {twice[:10]}")
    return wrong


def count_moved(numbers):
    """How many came behind a later one of their topic."""
    topics = ([number for number in numbers if number % 3 == topic] for topic in range(3))
    return sum(after < before for of_topic in topics for before, after in pairwise(of_topic))


CLIENT_ID, WRITER_ID = "tablet", "writer"
HOST = "127.0.0.1"
KEEP_ALIVE_S = 5
MQTT_JS = Path(__file__).with_name("mqtt_js_subscriber.js")


class Receipt(NamedTuple):
    """A message that the subscriber was given: its number, its packet id, and whether it was marked."""

    number: int
    packet_id: int
    dup: bool


class ClientFiles(NamedTuple):
    """What a client with a certificate needs."""

    ca: Path
    cert: Path
    key: Path

    def make_context(self):
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.cert, self.key)
        return context


def make_paho_properties():
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 3_600
    return properties


class ProcessSubscriber:
    """A program that prints what it is given."""

    async def start(self, port):
        self.child = await asyncio.create_subprocess_exec(*self.make_command(port), stdout=subprocess.PIPE)
        self._task = asyncio.ensure_future(self._read())

    async def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.child.kill()
        await self.child.wait()
        await self._task


class MosquittoSubscriber(ProcessSubscriber):
    """`mosquitto_sub`: what it prints of each message, packet id and all.  It has no certificate here: over TLS it ends
    when its connection is cut."""

    topic_filter = "p/#"

    def __init__(self, version, files=None, client_id=CLIENT_ID):
        self.receipts, self.presents = [], []
        self.client_id, self._version = client_id, version

    def make_command(self, port):
        expiry = ("-x", "3600") if self._version == 5 else ()
        version = "5" if self._version == 5 else "311"
        command = ["stdbuf", "-oL", "mosquitto_sub", "-V", version, "-h", HOST, "-p", str(port), "-d"]
        command += ["-c", "-i", self.client_id, "-q", "1", "-t", self.topic_filter, "-k", str(KEEP_ALIVE_S)]
        return [*command, "-F", '{"n":"%p","m":%m}', *expiry]

    async def _read(self):
        dups = {}
        async for line in self.child.stdout:
            text = line.decode()
            if text.startswith("{"):
                found = json.loads(text)
                self.receipts.append(self.make_receipt(int(found["n"]), found["m"], dups.get(found["m"], False)))
            elif "received PUBLISH (" in text:
                fields = text.split("(")[1].split(", ")
                dups[int(fields[3][1:])] = fields[0] == "d1"
            elif "received CONNACK (0)" in text:
                self.presents.append(None)

    def make_receipt(self, *given):
        return Receipt(*given)


class GroupMember(MosquittoSubscriber):
    """One of a group; all of them write to one list, in the order in which they print."""

    topic_filter = "$share/g/jobs/#"

    def __init__(self, number, receipts, version):
        super().__init__(version, client_id=f"member{number}")
        self.number, self.receipts = number, receipts

    def make_receipt(self, *given):
        return MemberReceipt(self.number, *given)


class PahoSubscriber:
    """paho-mqtt, in its own thread."""

    def __init__(self, version, files=None, client_id=CLIENT_ID):
        self.receipts, self.presents, self.client_id = [], [], client_id
        is_5 = version == 5
        given = {} if is_5 else {"clean_session": False}
        protocol = paho.MQTTv5 if is_5 else paho.MQTTv311
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=protocol, **given)
        if files is not None:
            self._client.tls_set_context(files.make_context())
        self._connecting = {"clean_start": False, "properties": make_paho_properties()} if is_5 else {}
        self._client.reconnect_delay_set(0.05, 0.2)
        self._client.on_connect = self._connected
        self._client.on_message = self._received

    def _connected(self, client, userdata, flags, code, properties):
        if code == 0:
            self.presents.append(flags.session_present)
            if not flags.session_present:
                client.subscribe("p/#", qos=1)

    def _received(self, client, userdata, message):
        self.receipts.append(Receipt(int(message.payload), message.mid, message.dup))

    async def start(self, port):
        self._client.connect_async(HOST, port, keepalive=KEEP_ALIVE_S, **self._connecting)
        self._client.loop_start()

    async def end(self):
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)


class AiomqttSubscriber:
    """aiomqtt as its manual has it: a loop that connects anew.  It does not tell whether a message was marked, so one
    that comes again under the same packet id counts as marked."""

    def __init__(self, version, files=None):
        self.receipts, self.presents = [], []
        self._context = None if files is None else files.make_context()

    async def start(self, port):
        self._task = asyncio.ensure_future(self._run(port))

    async def _run(self, port):
        while True:
            with contextlib.suppress(aiomqtt.MqttError):
                await self._connect(port)
            await pause_async(0.1, "before it connects again")

    async def _connect(self, port):
        client = aiomqtt.Client(
            HOST, port, identifier=CLIENT_ID, protocol=aiomqtt.ProtocolVersion.V5, clean_start=False,
            properties=make_paho_properties(), keepalive=KEEP_ALIVE_S, tls_context=self._context,
        )  # fmt: skip
        async with client:
            self.presents.append(None)
            await client.subscribe("p/#", qos=1)
            async for message in client.messages:
                found = Receipt(int(message.payload), message.mid, False)
                self.receipts.append(found._replace(dup=found in self.receipts))

    async def end(self):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class MqttJsSubscriber(ProcessSubscriber):
    """MQTT.js, which `MQTT_JS` runs; its package is in `modules`."""

    def __init__(self, modules, version):
        self.receipts, self.presents = [], []
        self._modules = modules
        self._level = "5" if version == 5 else "4"

    def make_command(self, port):
        return ["node", str(MQTT_JS), str(self._modules), CLIENT_ID, str(port), str(KEEP_ALIVE_S), self._level]

    async def _read(self):
        async for line in self.child.stdout:
            found = json.loads(line)
            if "present" in found:
                self.presents.append(found["present"])
            else:
                self.receipts.append(Receipt(int(found["n"]), found["m"], found["dup"]))


def install_mqtt_js(folder):
    """The folder of the package, fetched by npm; it is no part of this repository."""
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), "mqtt@5"]
    subprocess.run(command, check=True, timeout=300)
    return folder / "node_modules" / "mqtt"


def make_subscriber(client, folder, files=None):
    """One of `CLIENTS`."""
    if client in FETCHED:
        return MqttJsSubscriber(install_mqtt_js(folder / "npm"), int(client[-1]))
    return KINDS[client[:-1]](int(client[-1]), files)


KINDS = {"mosquitto": MosquittoSubscriber, "paho": PahoSubscriber, "aiomqtt": AiomqttSubscriber}
CLIENTS = ("mosquitto3", "mosquitto5", "paho3", "paho5", "aiomqtt5")
"""Those that are installed."""

FETCHED = ("mqttjs3", "mqttjs5")
"""MQTT.js, which npm fetches."""


SENT = re.compile(r"Sending PUBLISH \(d\d, q\d, r\d, m(\d+)\)")
"""What paho's log says of a PUBLISH that it sends."""
KEPT = mqtt_codec.PacketProperties(session_expiry=3_600)
WINDOW = 8
"""Messages of a publisher of QoS 2 that are under way together."""


class PahoPublisher:
    """Publishes numbers, QoS 1, a few at a time; `answered` are those whose PUBACK came.

    What it sends, in which order and how often, paho's log tells.  No lock is held here: paho holds one of its own
    while it tells of a PUBACK, and takes the same one to publish.
    """

    def __init__(self, files=None):
        self.count = 0
        self._numbers = {}
        self._acknowledged = set()
        self._log = []
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, WRITER_ID, protocol=paho.MQTTv311, clean_session=False
        )
        if files is not None:
            self._client.tls_set_context(files.make_context())
        self._client.reconnect_delay_set(0.05, 0.2)
        self._client.on_publish = lambda client, userdata, mid, *given: self._acknowledged.add(mid)
        self._client.on_log = lambda client, userdata, level, text: self._log.append(text)

    @property
    def answered(self):
        return {self._numbers[mid] for mid in self._acknowledged & self._numbers.keys()}

    def list_sent(self):
        """A list for each connection: the numbers that were sent over it, in their order."""
        connections = [[]]
        for text in list(self._log):
            found = SENT.match(text)
            if found:
                connections[-1].append(self._numbers[int(found[1])])
            elif text.startswith("Sending CONNECT"):
                connections.append([])
        return connections

    def publish(self):
        self.count += 1
        topic, number = self.name_message(self.count)
        self._numbers[self._client.publish(topic, str(number), qos=1).mid] = number

    def name_message(self, count):
        """Its topic, and the number that it carries."""
        return "p/1", count

    @property
    def is_connected(self):
        """Whether it sends in order: what paho is given before CONNACK it sends before what it repeats."""
        return self._client.is_connected()

    def start(self, port):
        self._client.connect_async(HOST, port, keepalive=KEEP_ALIVE_S)
        self._client.loop_start()

    async def end(self):
        await asyncio.to_thread(self._client.disconnect)
        await asyncio.to_thread(self._client.loop_stop)


class TopicPublisher(PahoPublisher):
    """Publishes to so many topics in turn."""

    def __init__(self, topics):
        super().__init__()
        self.topics = topics

    def name_message(self, count):
        topic, number = count % self.topics, count // self.topics
        return f"jobs/{topic}", topic * SPREAD + number


class RawClient:
    """Packets over TCP, to one node after the other."""

    def __init__(self, client_id):
        self.client_id = client_id
        self.present = False
        self._writer = None

    async def connect(self, port):
        """Until a node accepts it."""
        while True:
            self.close()
            try:
                self.reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
                self._decoder, self._packets = mqtt_codec.Decoder(5), []
                self.send(self.make_connect())
                connack = await self.read()
                if connack.reason_code == 0:
                    self.present = connack.session_present
                    return
            except OSError:
                pass
            await pause_async(0.05, "before it connects again")

    def make_connect(self):
        return mqtt_codec.ConnectPacket(self.client_id, mqtt_codec.MqttVersion.V5, clean_start=False, properties=KEPT)

    def send(self, packet):
        self._writer.write(mqtt_codec.encode(packet, mqtt_codec.MqttVersion.V5))

    async def read(self):
        """The next packet; raises `OSError` when the connection is gone."""
        while not self._packets:
            data = await self.reader.read(65_536)
            if not data:
                raise ConnectionError
            self._packets += self._decoder.feed(data)
        packet = self._packets.pop(0)
        if isinstance(packet, mqtt_codec.DisconnectPacket):
            raise ConnectionError
        return packet

    def close(self):
        """At once."""
        if self._writer is not None:
            self._writer.transport.abort()


class OncePublisher(RawClient):
    """Publishes numbers with QoS 2, so many under way together; it comes again as the standard says.

    `open`: packet id -> (number, whether it was answered by PUBREC); `seen` counts packets of the handshake by name."""

    def __init__(self, chance):
        super().__init__(WRITER_ID)
        self.count, self.answered, self.is_connected = 0, set(), False
        self.open, self.seen, self.handed = {}, Counter(), deque()
        self._chance = chance
        self._free = list(range(1, WINDOW + 1))

    def start(self, port):
        self._task = asyncio.ensure_future(self._run(port))

    async def _run(self, port):
        while True:
            await self.connect(port)
            for packet_id, (_, is_received) in list(self.open.items()):
                if is_received:
                    self.send(mqtt_codec.PubrelPacket(packet_id))
                else:
                    self._send_publish(packet_id, dup=True)
            self.is_connected = True
            with contextlib.suppress(OSError):
                while True:
                    self._fill_window()
                    self._take(await self.read())
            self.is_connected = False

    def publish(self):
        self.count += 1
        self.handed.append(self.count)
        if self.is_connected:
            self._fill_window()

    def name_message(self, count):
        return f"p/{count % 3}", count

    def _fill_window(self):
        while self._free and self.handed:
            packet_id = self._free.pop(self._chance.randrange(len(self._free)))
            self.open[packet_id] = (self.handed.popleft(), False)
            self._send_publish(packet_id)
            self.seen["publish"] += 1

    def _send_publish(self, packet_id, dup=False):
        topic, number = self.name_message(self.open[packet_id][0])
        self.send(mqtt_codec.PublishPacket(topic, b"%d" % number, 2, dup=dup, packet_id=packet_id))

    def _take(self, packet):
        number, is_received = self.open.get(packet.packet_id, (0, False))
        if isinstance(packet, mqtt_codec.PubrecPacket):
            assert packet.reason_code in (0, 0x10), packet
            self.seen["pubrec"] += 1
            self.open[packet.packet_id] = (number, True)
            self.send(mqtt_codec.PubrelPacket(packet.packet_id))
            self.seen["pubrel"] += 1
        else:
            assert isinstance(packet, mqtt_codec.PubcompPacket), packet
            assert is_received
            assert packet.reason_code in (0, 0x92), packet
            self.seen["pubcomp"] += 1
            self.answered.add(number)
            del self.open[packet.packet_id]
            self._free.append(packet.packet_id)

    async def end(self):
        """At once; that it has ended by itself is an error."""
        assert not self._task.done(), self._task.result()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.close()
