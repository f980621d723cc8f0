"""The demo's account of the consumers' own files: it must see everything that is wrong."""

from __future__ import annotations

import pytest

from statemachines.demo.shared_subscriptions.account import Blow, check, count_acknowledged
from statemachines.drivers.shared_subscriptions.consumer_file import ConsumerFile
from statemachines.drivers.shared_subscriptions.text_lines import read, repeat_topics, topic_of
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


def test_a_whole_run_is_right(tmp_path):
    account = judged(tmp_path, a=[(1, 0, 4, 4)], b=[(2, 5, 9, 9)])
    assert (account.wrong, account.got, account.acknowledged, account.duplicates) == ([], 10, 10, 0)
    assert count_acknowledged({"a": tmp_path / "a", "b": tmp_path / "b"}) == 10


def test_what_the_killed_one_left_open_may_come_twice(tmp_path):
    account = judged(tmp_path, b=[(1, 0, 6, 3)], a=[(2, 4, 5, 5), (4, 8, 9, 9)], c=[(3, 6, 7, 7)])
    assert (account.wrong, account.duplicates) == ([], 3)


def test_what_was_in_hand_when_the_leading_host_was_killed_may_come_again(tmp_path):
    assert judged(tmp_path, killed="", a=[(1, 0, 6, 6)], c=[(2, 4, 9, 9)]).wrong == []


def test_a_blow_excuses_only_what_comes_again_after_it(tmp_path):
    files = {}
    for name, at, part in (("b", 10, (1, 0, 6, 6)), ("a", 20, (2, 4, 9, 9))):
        files[name] = tmp_path / name
        file = ConsumerFile(files[name], clock=lambda at=at: at)
        file.got("0.0/t", part[0], [(offset, LINES[offset]) for offset in range(part[1], part[2] + 1)])
    for at, wrong in ((10, False), (20, False), (21, True)):
        said = check(TOPICS, files, [Blow(at, "b")]).wrong
        assert any("got again" in one for one in said) is wrong


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


def test_a_cut_last_line_is_left_out(tmp_path):
    path = write(tmp_path / "a", [(1, 0, 9, 9)])
    path.write_bytes(path.read_bytes()[:-4])
    assert count_acknowledged({"a": path}) == 9


def test_the_default_input_is_our_own_source():
    topics = read(None)
    assert "kernel/fsm.py" in topics
    assert sum(len(lines) for lines in topics.values()) >= 20_000


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


def test_topics_have_no_wildcards():
    assert topic_of("$a/b+c#") == "a/b_c_"
    assert repeat_topics({"a": [b"x"] * 3}, 7) == {"a": [b"x"] * 9}
