"""The demo's account of the consumers' own files: it must see everything that is wrong."""

import pytest

from statemachines.demo.shared_subscriptions.account import Blow, check
from statemachines.drivers.shared_subscriptions.consumer_file import ConsumerFile
from statemachines.drivers.shared_subscriptions.text_lines import read
from statemachines.kernel import ConfigurationError

LINES = [f"line {number}".encode() for number in range(10)]
TOPICS = {"t": LINES}


def write(path, parts):
    """(grant, first, last, acknowledged up to) of stream 0.0/t."""
    file = ConsumerFile(path, clock=lambda: 5)
    for grant, first, last, acked in parts:
        file.got("0.0/t", grant, [(offset, LINES[offset]) for offset in range(first, last + 1)])
        file.write_acknowledged("0.0/t", grant, [(offset, b"") for offset in range(first, acked + 1)])
    return path


def judged(tmp_path, killed="b", **consumers):
    files = {name: write(tmp_path / name, parts) for name, parts in consumers.items()}
    return check(TOPICS, files, [Blow(5, killed)])


@pytest.mark.parametrize(
    ("consumers", "says"),
    [
        ({"a": [(1, 0, 6, 6)], "c": [(2, 4, 9, 9)]}, "c got again what a had finished"),
        ({"b": [(1, 0, 6, 6)], "a": [(2, 8, 9, 9)]}, "nobody got 7 to 7"),
        ({"a": [(1, 0, 9, 8)]}, "t: 1 of 10 lines were never acknowledged"),
        ({"a": [(1, 0, 3, 3), (1, 5, 9, 9)]}, "jumps from 3 to 5"),
        ({"a": []}, "10 of 10 lines were never acknowledged"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, consumers, says):
    assert any(says in wrong for wrong in judged(tmp_path, **consumers).wrong)


def test_another_content_is_seen(tmp_path):
    file = ConsumerFile(tmp_path / "a")
    file.got("0.0/t", 1, [(0, b"something else")])
    assert "message 0 is not that line" in check(TOPICS, {"a": tmp_path / "a"}, []).wrong[0]


def test_a_folder_gives_a_topic_per_text_file(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_text("one\ntwo\n\nthree")
    (tmp_path / "b+.md").write_text("x\n")
    (tmp_path / ".hidden").write_text("no\n")
    (tmp_path / "picture").write_bytes(b"\0\1\2\n")
    assert read(tmp_path) == {"b_.md": [b"x"], "deep/a.txt": [b"one", b"two", b"", b"three"]}
    assert read(tmp_path / "deep" / "a.txt") == {"a.txt": [b"one", b"two", b"", b"three"]}


def test_nothing_to_read_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="holds no line of text"):
        read(tmp_path)
