"""Nodes of sessions and of MQTT, and leader hosts, as processes that are started, killed, stopped, and come back."""

import asyncio
import contextlib
import os
import signal
import subprocess

from outside import PROGRAM

from statemachines.testing.process_harness import free_port
from tests.waiting import pause_async, read_clock_s, within

PATIENCE_S = 300
"""Longer than anything takes on however busy a machine, so that what has not come by then is missing."""
QUICK = ("--lease-ms", "1000", "--look-ms", "200", "--marker-ms", "400")


class NodeProcess:
    """A node as a process, which lives in `folder`; it comes back on its ports.  `store`: an URL, or a file by its
    whole path.  `program`: what it runs when it starts; `times` of a node of sessions or MQTT.

    `groups`: clients of MQTT may use `$share`."""

    def __init__(self, folder, name, store, program=PROGRAM, role="sessions", groups=False, times=QUICK):
        self.folder, self.name, self.store = folder, name, store
        self.program, self.role, self.times = program, role, times
        self.port = free_port()
        self.node_port = free_port() if role == "mqtt" else self.port
        self.group_port = free_port() if groups else 0
        self.child, self.others, self.options = None, (), ()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    async def start(self, others=(), *options):
        """Beside these, with these options; with those of before where nothing is said."""
        self.others, self.options = others or self.others, options or self.options
        command = [*self.program, "node", self.role, "--store", self.store, "--name", self.name]
        command += ["--listen", self.address, *self.times, *self.options]
        if peers := self.list_others("node_port"):
            command += ["--peers", peers]
        if self.role == "mqtt":
            command += ["--node-listen", f"127.0.0.1:{self.node_port}"]
        if self.group_port:
            command += ["--group-listen", f"127.0.0.1:{self.group_port}"]
            command += ["--group-peers", self.list_others("group_port")]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            given = {"stdout": subprocess.PIPE, "stderr": log, "cwd": self.folder}  # where its life of a group is kept
            self.child = await asyncio.create_subprocess_exec(*command, **given)
        async with within(f"{self.name} begins, beside a load of 50", hangs=3):
            line = await self.child.stdout.readline()
        assert line.startswith(b"listening on "), self.said()

    def list_others(self, port):
        return ",".join(f"127.0.0.1:{getattr(one, port)}" for one in self.others if one is not self)

    def said(self):
        return (self.folder / f"{self.name}.log").read_text()

    async def end(self, number=signal.SIGTERM):
        """How it ended."""
        self.child.send_signal(number)
        async with within(f"{self.name} ends", hangs=5):
            return await self.child.wait()

    def stop(self):
        self.child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self):
        self.child.send_signal(signal.SIGCONT)


@contextlib.asynccontextmanager
async def nodes_of(folder, store, names=("a", "b"), *options, last=None, **more):
    """Nodes that run, and have ended when this is left; `last`: another way to the store, for the last of them."""
    nodes = [NodeProcess(folder, name, store, **more) for name in names]
    nodes[-1].store = last or store
    try:
        await asyncio.gather(*(node.start(nodes, *options) for node in nodes))
        yield nodes
    finally:
        for node in nodes:
            if node.child is not None and node.child.returncode is None:
                node.child.kill()
                await node.child.wait()


def mqtt_nodes(folder, store, names=("a", "b"), *options, groups=False):
    """Nodes of MQTT, whose logs are judged."""
    return nodes_of(folder, store, names, "--trace", str(folder / "trace"), *options, role="mqtt", groups=groups)


async def until(holds, seconds=PATIENCE_S, every_s=0.01):
    """Wait; whether it came to hold."""
    end_s = read_clock_s() + seconds
    while not holds() and read_clock_s() < end_s:
        await pause_async(every_s, "between two looks: that it never comes is for the judge")
    return holds()
