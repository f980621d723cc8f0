"""What others have said reaches a terminal as text, and nothing else."""

from __future__ import annotations

import asyncio
import io
import logging
import subprocess
import sys
import unicodedata
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from statemachines.drivers.shared_subscriptions.node_commands import deal_with
from statemachines.plain_text import PlainFormatter, plain_line


def test_control_characters_are_escaped_and_everything_else_stays():
    for code in range(0x11_0000):
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Zl", "Zp") and character != "\t":
            assert plain_line(character) == repr(character)[1:-1]
        elif 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069:
            assert plain_line(character) == f"\\u{code:04x}"
        else:
            assert plain_line(character) == character


@pytest.fixture
def said():
    """What a logger with our formatter writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PlainFormatter())
    logger = logging.getLogger("gapless.plain")
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, stream
    logger.removeHandler(handler)
    logger.propagate = True


def without_time(line):
    """The line behind its time, which is that of now, in UTC."""
    time, rest = line.split(" ", 1)
    said = datetime.strptime(time, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - said).total_seconds()) < 300
    return rest


def test_a_log_line_cannot_look_like_two(said):
    logger, stream = said
    logger.warning("says %s", "\x1b[2Jhello\nERROR all is lost\r\x07\x9b31m")
    assert without_time(stream.getvalue()) == "WARNING says \\x1b[2Jhello\\nERROR all is lost\\r\\x07\\x9b31m\n"


def test_only_a_traceback_has_lines_of_its_own(said):
    logger, stream = said
    try:
        raise ValueError("bad \x1b]0;title\x07")
    except ValueError:
        logger.exception("it stops")
    lines = stream.getvalue().splitlines()
    assert without_time(lines[0]) == "ERROR it stops"
    assert lines[-1] == "ValueError: bad \\x1b]0;title\\x07"
    assert len(lines) > 3


NODE = """
import logging
from statemachines.drivers.signals import run_until_signal

async def work():
    logging.getLogger("gapless").warning("a peer says %s", chr(27) + "[2J")
    logging.getLogger("gapless").info("a group has a leader")
    logging.getLogger("another").info("of no interest")

run_until_signal(work())
"""


def test_every_node_logs_so():
    done = subprocess.run([sys.executable, "-c", NODE], capture_output=True, text=True, check=True)
    first, second = done.stderr.splitlines()
    assert without_time(first) == "WARNING a peer says \\x1b[2J"
    assert without_time(second) == "INFO a group has a leader"


def test_a_consumer_prints_one_line_a_message_whatever_is_in_it(capsys):
    acknowledged = []

    class Message(NamedTuple):
        topic: str
        offset: int
        payload: bytes
        stream: str = "0.0/a"
        grant: int = 1
        owner: str = "c~1/1"

        async def ack(self):
            acknowledged.append(self.offset)

    asyncio.run(deal_with([Message("a", 0, b"one\x1b[2J\ntwo\t\xff"), Message("a", 1, b"")], None, 0))
    assert capsys.readouterr().out == "a\t0\tone\\x1b[2J\\ntwo\t\ufffd\na\t1\t\n"
    assert acknowledged == [0, 1]
