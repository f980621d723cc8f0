"""Run mosquitto's broker tests against our node: `tools/foreign_mqtt.sh` fetches them and calls this.

    python tools/foreign_mqtt.py SOURCES [PATTERN ...]     the tests, and a table of them
    python tools/foreign_mqtt.py --broker -p PORT          our node, started as mosquitto is
    python tools/foreign_mqtt.py --broker -c FILE

A test starts `../../src/mosquitto`; that file becomes a script that runs the second form.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

GROUPS = ("01-*", "02-*", "03-*", "04-*", "05-*", "07-*", "11-*", "12-*")
TEST_S = 600
PARALLEL = 2


# -- our node in place of mosquitto ---------------------------------------------------------------------------------


def read_configuration(arguments: list[str]) -> dict[str, str]:
    """Keys of mosquitto, the last of each; `port` has all ports."""
    keys: dict[str, str] = {"allow_anonymous": "true"}
    ports: list[str] = []
    given = iter(arguments)
    for one in given:
        if one == "-p":
            ports.append(next(given))
        elif one == "-c":
            del keys["allow_anonymous"]
            for line in Path(next(given)).read_text().splitlines():
                key, _, value = line.strip().partition(" ")
                if key in ("listener", "port"):
                    keys.setdefault("has_listener", "")
                    ports.append(value.split()[0])
                elif key and not key.startswith("#"):
                    keys[key] = value.strip()
            if "has_listener" in keys and "allow_anonymous" not in keys:
                keys["allow_anonymous"] = "false"
    return keys | {"port": " ".join(ports or ["1883"])}


def write_permissions(acl: Path, permissions: Path) -> Path:
    """mosquitto's access list as a file of ours.  Its users are everybody here: a name without a password is none."""
    lines = ["* connect *"]
    for line in acl.read_text().splitlines():
        kind, _, rest = line.strip().partition(" ")
        access, _, topic = rest.partition(" ")
        if kind == "topic":
            lines += [f"* subscribe {topic}"] * ("read" in access) + [f"* publish {topic}"] * ("write" in access)
    permissions.write_text("\n".join(lines) + "\n")
    return permissions


def keep_property_order() -> None:
    """Properties of a message leave as they came: their order is free (2.2.2.2), and the tests compare bytes."""
    from statemachines.mqtt_codec import packet_form, packet_property
    from statemachines.mqtt_codec.byte_field import ByteReader, write_varint

    codec: Any = packet_form
    read, write, orders = codec.read_properties, codec.write_properties, dict[Any, list[bytes]]()

    def split(raw: bytes) -> list[bytes]:
        reader, found = ByteReader(raw), []
        reader.read_varint()
        while reader.at < reader.end:
            begin = reader.at
            packet_property._FORMS[packet_property._NAMES[reader.read_byte()]].read(reader)
            found.append(raw[begin : reader.at])
        return found

    def read_and_note(reader: ByteReader, kind: Any) -> Any:
        begin = reader.at
        properties = read(reader, kind)
        parts = [one for one in split(reader.data[begin : reader.at]) if one[0] != 0x18]  # no delay of a will
        orders[tuple(sorted(parts))] = parts
        return properties

    def write_as_noted(properties: Any, kind: Any) -> bytes:
        parts = split(write(properties, kind))
        data = b"".join(orders.get(tuple(sorted(parts)), parts) if kind.name == "PUBLISH" else parts)
        return write_varint(len(data)) + data

    codec.read_properties, codec.write_properties = read_and_note, write_as_noted


def start_broker(arguments: list[str]) -> None:
    """Run our node until a signal ends it.  It listens before its modules are there: a test waits 2 s for that."""
    keys = read_configuration(arguments)
    servers = [socket.create_server(("localhost", int(one)), backlog=100) for one in keys["port"].split()]
    from statemachines.drivers.mqtt_connections.mqtt_node import MqttNode
    from statemachines.drivers.password_file import PasswordFile
    from statemachines.drivers.permission_file import PermissionFile
    from statemachines.drivers.persistent_sessions.group_host import GroupHost
    from statemachines.drivers.persistent_sessions.session_node import SessionNode
    from statemachines.drivers.signals import on_hangup, run_until_signal
    from statemachines.mqtt_codec import packet_property
    from statemachines.mqtt_codec.decoder import PACKET_MAX
    from statemachines.mqtt_connections.connection_record import MqttSettings

    # The tests compare bytes, and the order of properties is free (2.2.2.2): CONNACK has them in mosquitto's order.
    forms = packet_property._FORMS
    for name in [one for one in forms if one not in ("topic_alias_maximum",)]:
        forms[name] = forms.pop(name)
    forms["receive_maximum"] = forms.pop("receive_maximum")
    keep_property_order()

    listen = ("127.0.0.1", 1)
    loops: Any = asyncio.BaseEventLoop
    create_server = loops.create_server

    async def create_here(loop: Any, make: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        if (host, port) != listen:
            return await create_server(loop, make, host, port, **options)
        first, *_ = [await create_server(loop, make, sock=one, **options) for one in servers]
        return first

    loops.create_server = create_here
    settings = MqttSettings(
        receive_maximum=int(keys.get("max_inflight_messages", "20")),
        topic_alias_maximum=10,
        max_packet=int(keys.get("max_packet_size", PACKET_MAX)),
        max_payload=int(keys.get("message_size_limit", 0)),
        keep_alive_max_s=int(keys.get("max_keepalive", 65_535)),
        expiry_max_s=2**32 - 1,
        expiry_3_s=2**32 - 1,
        retain_available=keys.get("retain_available") != "false",
        assigns_client_ids=keys.get("allow_zero_length_clientid") != "false",
    )
    if "password_file" in keys:
        Path(keys["password_file"]).chmod(0o600)  # the tests write it for everybody, which we refuse
    users = None if "password_file" not in keys else PasswordFile(keys["password_file"])
    anonymous = keys.get("allow_anonymous") != "false"
    folder = tempfile.mkdtemp()
    acl, rights = Path(keys.get("acl_file", "")), Path(folder) / "permissions"
    permissions = PermissionFile(write_permissions(acl, rights)) if "acl_file" in keys else None
    store = keys.get("persistence_file") if keys.get("persistence") == "true" else None

    async def work() -> None:
        where = Path(store or f"{folder}/s.db")
        async with GroupHost(where) as host:
            node = SessionNode(where, name="a", groups=host.groups, authorize=permissions)
            front = MqttNode(node, settings=settings, users=users, listen=listen, allows_anonymous=anonymous)
            async with node, front:
                on_hangup(lambda: (write_permissions(acl, rights), node.authority.reload()))
                await node.wait_for_failure()

    try:
        run_until_signal(work())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- the tests --------------------------------------------------------------------------------------------------------


def list_tests(folder: Path, patterns: list[str]) -> list[tuple[int, str]]:
    """(ports, name) of the tests that the suite runs."""
    found = re.findall(r"^ *\((\d), '\./([\w.-]+\.py)'", (folder / "test.py").read_text(), re.MULTILINE)
    wanted = patterns or list(GROUPS)
    there = [(int(ports), name) for ports, name in found if (folder / name).exists()]
    return [(ports, name) for ports, name in there if any(fnmatch.fnmatch(name, one) for one in wanted)]


def run_test(folder: Path, name: str, ports: list[int]) -> tuple[str, bool, str]:
    """Its name, whether it passed, and what it printed."""
    command = [sys.executable, f"./{name}", *map(str, ports)]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as child:
        try:
            said, _ = child.communicate(timeout=TEST_S)
        except subprocess.TimeoutExpired:
            said = "no end within its time"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return name, child.returncode == 0, said


def run_tests(sources: Path, patterns: list[str]) -> int:
    """Print the table; the number of tests that failed."""
    broker = sources / "src" / "mosquitto"
    broker.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" --broker "$@"\n')
    broker.chmod(0o755)
    folder = sources / "test" / "broker"
    tests = list_tests(folder, patterns)
    free = list(range(PARALLEL))

    def run_one(test: tuple[int, str]) -> tuple[str, bool, str]:
        lane = free.pop()
        try:
            first = 10_000 + 200 * (os.getpid() % 100) + 100 * lane  # another run has others
            return run_test(folder, test[1], list(range(first, first + test[0])))
        finally:
            free.append(lane)

    failed = []
    with ThreadPoolExecutor(PARALLEL) as pool:
        for name, passed, said in pool.map(run_one, tests):
            print(f"{'passed' if passed else 'FAILED'}  {name}", flush=True)
            if not passed:
                failed.append(name)
                (folder / f"{name}.said").write_text(said)
    print(f"{len(tests) - len(failed)} of {len(tests)} passed; what a failed one said: {folder}/NAME.said")
    return len(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--broker"]:
        start_broker(sys.argv[2:])
    else:
        sys.exit(1 if run_tests(Path(sys.argv[1]), sys.argv[2:]) else 0)
