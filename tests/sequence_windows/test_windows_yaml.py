"""The source's YAML, and files that are made to hurt."""

from __future__ import annotations

import sys

import pytest

from statemachines.drivers.sequence_windows import Window, Windows, read_windows
from statemachines.kernel import ConfigurationError

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
