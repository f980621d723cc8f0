"""README: the consumer runs as shown, the printed table is the shipped one, one screen is enough."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from statemachines.cli import app

README = Path(__file__).resolve().parents[2] / "README.md"


def shown(needle: str) -> str:
    """The block of Python in README that holds `needle`."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if needle in block]
    return block


def test_the_readme_has_at_most_120_lines() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_the_first_code_its_output_and_the_picture_stand_in_the_first_60_lines() -> None:
    first = "\n".join(README.read_text(encoding="utf-8").splitlines()[:60])
    assert "```python" in first
    assert "hello.txt 1 second line" in first
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", first)
    path = README.parent / picture
    assert path.stat().st_size < 100_000
    assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_the_rows_in_the_readme_are_printed_by_show() -> None:
    printed = CliRunner().invoke(app, ["show", "stream"]).stdout.splitlines()
    text = README.read_text(encoding="utf-8")
    (block,) = [block for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL) if "SS-30" in block]
    assert [line for line in block.splitlines() if line.rstrip() not in [row.rstrip() for row in printed]] == []


@pytest.mark.long
def test_the_consumer_of_the_readme_reads_what_was_published(tmp_path: Path) -> None:
    code = shown("SharedSubscription")
    assert len([line for line in code.splitlines() if line.strip()]) <= 12, "a dozen lines"
    node = [sys.executable, "-m", "statemachines", "node"]
    store = ["--store", str(tmp_path / "messages.db")]
    listen = ["--listen", "127.0.0.1:0"]
    leader = subprocess.Popen([*node, "leader", *store, *listen], stdout=subprocess.PIPE, text=True)
    try:
        assert leader.stdout is not None
        address = leader.stdout.readline().split()[-1]
        (tmp_path / "hello.txt").write_text("first line\nsecond line\n")
        subprocess.run([*node, "publisher", *store, "--input", str(tmp_path / "hello.txt")], check=True)
        code = (
            code.replace("127.0.0.1:7411", address)
            .replace("print(", "print(flush=True, *(")
            .replace(".decode())", ".decode()))")
        )
        consumer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        assert consumer.stdout is not None
        lines = [consumer.stdout.readline() for _ in range(2)]
        consumer.send_signal(signal.SIGKILL)
        consumer.wait()
        consumer.stdout.close()
        assert lines == ["hello.txt 0 first line\n", "hello.txt 1 second line\n"]
    finally:
        leader.terminate()
        assert leader.wait(30) == 0
        leader.stdout.close()
