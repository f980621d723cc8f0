"""Subscribers that nobody here wrote: each keeps its process, connects again by itself, and tells what it was given.

`receipts` are the messages; `presents` has an entry for each connection: whether its session was present (None: the
client does not tell).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import aiomqtt
import paho.mqtt.client as paho
from mqtt_judge import MemberReceipt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

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
            await asyncio.sleep(0.1)

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
