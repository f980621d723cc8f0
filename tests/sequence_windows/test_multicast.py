"""UDP multicast on the loopback interface: losses and duplicates on the way, real processes, `gapless show-loss`.

The source's YAML, and files that are made to hurt.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys

import msgspec
import pytest
from waiting import until

from statemachines.drivers.sequence_windows import (
    Group,
    LossReport,
    MulticastForwarder,
    MulticastReceiver,
    MulticastSender,
    SequencedPublisher,
    SequencedSubscriber,
    Verdict,
    Window,
    Windows,
    read_windows,
)
from statemachines.drivers.sequence_windows.loss_report import ask_node, read_losses
from statemachines.drivers.sequence_windows.multicast import by_chance, parse_group
from statemachines.drivers.sequence_windows.show_loss import show_loss
from statemachines.kernel import ConfigurationError
from statemachines.sequence_windows.message import Judged
from statemachines.trace.parquet import TraceWriter
from statemachines.trace.row import Run, event_row

FIRST, NEXT, SKIP, CYCLE, REPEAT, NOT_SUBSCRIBED = Verdict
PORTS = itertools.count(20_000 + os.getpid() % 20_000)
LONG = 60.0


@pytest.fixture
def group():
    """A group that no other test has: the address comes from the process, the port from a count."""
    process = os.getpid()
    return Group(f"239.{86 + process % 100}.{process // 100 % 256}.{1 + process // 25_600 % 250}", next(PORTS))


def receive_until(receiver, subscriber, last):
    """Feed what arrives until the payload `last` has come."""
    came = []

    def feed():
        came.extend(map(subscriber.receive, receiver.receive_ready()))
        return any(one is not None and one.payload == last for one in came)

    until(feed, f"{last!r}")


def test_what_is_lost_and_repeated_on_the_way_is_what_is_counted(group):
    """The forwarder knows what it lost; a message of each subject at the end gets through."""
    other = Group(group.address, next(PORTS))
    subjects, count = ("a", "b", "c"), 900
    lose, repeat = by_chance(0.1, 1), by_chance(0.05, 2)
    got = []
    subscriber = SequencedSubscriber(got.append, everything=True)
    with (
        MulticastReceiver(other) as receiver,
        MulticastForwarder(
            group, other, lose=lambda n: 3 <= n < count and lose(n), repeat=lambda n: 3 <= n < count and repeat(n)
        ) as way,
        MulticastSender(group) as sender,
    ):
        publisher = SequencedPublisher(sender.send, publisher="p~1")
        for n in range(count + 3):
            last = b"last" if n == count + 2 else b"%d" % n
            publisher.publish(subjects[n % 3], last)
            until(way.forward_ready, "a datagram at the forwarder")
        receive_until(receiver, subscriber, b"last")
    (row,) = subscriber.losses().rows
    assert len(way.lost) > 50
    assert len(way.repeated) > 20
    assert (row.lost, row.unknown, row.repeat) == (len(way.lost), 0, len(way.repeated))
    assert len(got) == count + 3 - len(way.lost)
    assert sum(one.lost for one in got) == len(way.lost)


@pytest.mark.parametrize(
    "given",
    [("10.0.0.1", 7600), ("239.1.1.1", 0), ("239.1.1.1", 65_536), ("nowhere", 7600), ("239.1.1.1", 7600, "239.1.1.1"),
     ("239.1.1.1", 7600, "127.0.0.1", 256)],
)  # fmt: skip
def test_what_is_no_group_is_refused(given):
    with pytest.raises(ConfigurationError):
        Group(*given)


def test_a_group_as_text_and_an_interface_that_is_not_there():
    assert parse_group("239.1.2.3:7600") == Group("239.1.2.3", 7600)
    for text in ("239.1.2.3", "239.1.2.3:x", ":7600"):
        with pytest.raises(ConfigurationError):
            parse_group(text)
    missing = Group("239.1.2.3", 7600, "192.0.2.77")
    for side in (MulticastSender, MulticastReceiver):
        with pytest.raises(ConfigurationError):
            side(missing)
    with pytest.raises(ConfigurationError, match="forwards from"):
        MulticastForwarder(Group("239.1.2.3", 7600), Group("239.1.2.3", 7600), lose=bool, repeat=bool)


# -- processes ------------------------------------------------------------------------------------------------------


class Started:
    """A process of `gapless`, its lines of JSON as they come."""

    def __init__(self, *arguments, cwd):
        command = [sys.executable, "-m", "statemachines", *arguments]
        self.process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = []

    def until(self, condition):
        while not any(map(condition, self.lines)):
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            self.lines.append(json.loads(line))

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, said = self.process.communicate(timeout=LONG)
        self.lines += map(json.loads, out.splitlines())
        return said


def gapless(*arguments, cwd, given=""):
    command = [sys.executable, "-m", "statemachines", *arguments]
    return subprocess.run(command, cwd=cwd, input=given, capture_output=True, text=True, timeout=LONG, check=False)


def test_nodes_publish_lose_and_show(group, tmp_path):
    """A publisher, a subscriber behind a forwarder that loses three datagrams, show-loss of node, log and trace."""
    (tmp_path / "param.yaml").write_text("parameters:\n  sub-window-size: 1 mb\n  sub-window-time: 60 sec\n")
    far = Group(group.address, next(PORTS))
    near_name, far_name = (f"{one.address}:{one.port}" for one in (group, far))
    subscriber = Started(
        "node", "multicast-subscriber", "news", "--group", far_name, "--trace", "trace", "--losses", "losses.sock",
        "--config", "param.yaml", "--converged", cwd=tmp_path,
    )  # fmt: skip
    try:
        subscriber.until(lambda line: "joined" in line)
        with MulticastForwarder(group, far, lose=lambda n: n in (2, 3, 7), repeat=lambda n: n == 5) as way:
            lines = "".join(f"line {n}\n" for n in range(10))
            for start in (1, 2):
                done = gapless(
                    "node", "multicast-publisher", "--subject", "news", "--group", near_name, "--converged",
                    cwd=tmp_path, given=lines if start == 1 else "again\n",
                )  # fmt: skip
                assert done.returncode == 0, done.stderr
                sent = 10 if start == 1 else 11
                until(lambda sent=sent: (way.forward_ready() and way.count == sent) or way.count == sent, "datagrams")
        subscriber.until(lambda line: line.get("payload") == "again")
        report = ask_node(tmp_path / "losses.sock")
        shown = gapless("show-loss", "losses.sock", "--utc", cwd=tmp_path)
    finally:
        said = subscriber.end()
    got = [line for line in subscriber.lines if "payload" in line]
    assert [line["payload"] for line in got] == [*(f"line {n}" for n in (0, 1, 4, 5, 6, 8, 9)), "again"]
    assert [line.get("lost") for line in got] == [None, None, 2, None, None, 1, None, None]
    assert [line["from"] for line in got[-2:]] == ["publisher-1~1", "publisher-1~2"]
    advised = [line["advisory"]["lost"] for line in subscriber.lines if "advisory" in line]
    assert sum(advised) <= 3
    assert advised[0] == 2
    (first, second) = report.rows
    assert (first.user, first.lost, first.repeat, second.lost) == ("publisher-1~1", 3, 1, 0)
    assert shown.returncode == 0
    assert re.search(r"publisher-1~1 \|      1 \| \d\d:\d\d:\d\d\.\d{3} .*\|         3 \|", shown.stdout)
    assert "real memory is several times that" in shown.stdout
    assert "msg loss" in said
    logged = read_losses(tmp_path / "trace")
    assert [(row.user, row.lost, row.repeat) for row in logged.rows] == [
        ("publisher-1~1", 3, 1),
        ("publisher-1~2", 0, 0),
    ]
    assert not (tmp_path / "losses.sock").exists()


def test_losses_of_a_trace_in_parquet(tmp_path, capsys):
    told = [Judged(SKIP, 5, 4, 4, 2), Judged(SKIP, 6, 1, 1, 1, True), Judged(REPEAT, 6, 1, 1)]
    rows = [
        event_row(n + 1, "s", "s~1:x", "tell", one, "p.1", -1, "sequence_windows/subscriber_window", True)
        for n, one in enumerate(told)
    ]
    with TraceWriter(tmp_path, "x") as writer:
        writer.add(Run(1, "by hand", 0, "{}", "held", "{}", "{}"), rows)
    (row,) = read_losses(tmp_path).rows
    assert (row.user, row.lost, row.unknown, row.lost_ns, row.repeat, row.repeat_ns) == ("p.1", 2, 1, 2, 1, 3)
    show_loss(tmp_path, utc=True, json=True)
    assert msgspec.json.decode(capsys.readouterr().out, type=LossReport).rows == (row,)


def test_what_is_no_source_of_losses_is_said(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"no")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none", tmp_path / "empty", tmp_path / "x.parquet"):
        with pytest.raises(ConfigurationError, match="source"):
            read_losses(path)
    done = gapless("show-loss", "none", cwd=tmp_path)
    assert (done.returncode, "no socket of a node" in done.stderr) == (2, True)


S = 1_000_000_000
SOURCE = """\
parameters:
  pub-window-size: 10 mb
  pub-window-time: 60 sec
  sub-window-size: 10 mb
  sub-window-time: 60 sec
"""


def read(tmp_path, text):
    path = tmp_path / "param.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_windows(path)


def test_SW_60_the_file_of_the_source(tmp_path):
    assert read(tmp_path, SOURCE) == Windows(Window(10 << 20, 60 * S), Window(10 << 20, 60 * S))
    assert read(tmp_path, "parameters:\n  sub_window_time: 1 m\n  timeout: 5\nother: [1, 2]\n") == Windows(
        Window(), Window(4 << 20, 60 * S)
    )
    for nothing in ("", "# nothing\n", "parameters:\n", "services: []\n"):
        assert read(tmp_path, nothing) == Windows()


BOMB = "a: &a [x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "aliases, anchors and tags are refused"),
        ("parameters: &p\n  pub-window-size: 1 mb\n", "line 1: aliases"),
        ("parameters:\n  pub-window-size: !!python/object/apply:os.system ['true']\n", "line 2: aliases"),
        ("parameters: !x\n", "refused"),
        ("#" * (65 << 10), "more than 65536 bytes"),
        ("parameters: [", "is no YAML"),
        ("[" * 60_000, "nested more than 16 deep"),
        ("- " * 30_000, "nested more than 16 deep"),
        ("".join(" " * n + "a:\n" for n in range(300)), "nested more than 16 deep"),
        (b"\xff\xfe\x00", "is no YAML"),
        ("parameters: {}\n---\nparameters: {}\n", "is no YAML"),
        ("parameters: 5\n", "must be a block"),
        ("- 1\n", "must be a block"),
        ("parameters:\n  pub-window-time: 9 sec\n", "pub-window-time = 9000000000: at least"),
        ("parameters:\n  pub-window-size: 1.5\n", "pub-window-size = 1.5: must be a size"),
        ("parameters:\n  pub-window-size: 2026-01-01\n", "pub-window-size"),
        ("parameters:\n  pub-windows-size: 1 mb\n", "pub-windows-size"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path, text, said):
    with pytest.raises(ConfigurationError, match=said):
        read(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_windows(tmp_path / "none.yaml")


def test_without_pyyaml_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'gapless\[windows\]'"):
        read(tmp_path, SOURCE)
