"""A pure service in a file: what it answered is there, for every process, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap

import pytest
from made_up.machines import Given, Journal, JournalState, Next
from made_up_protocol import environment

from statemachines.drivers.files import FileDamaged, FileService, MemoryService


def ask(service, *requests):
    """What is fed for each."""
    fed = []

    async def main():
        for request in requests:
            work = service("p", request, lambda party, answer: fed.append((party, answer)))
            if work is not None:
                await work

    asyncio.run(main())
    return fed


ASKED = (Next("a", 1), Next("b", 1), Next("a", 1), Next("a", 2))
ANSWERED = [("p", Given("a", 1, 1)), ("p", Given("b", 1, 2)), ("p", Given("a", 1, 1)), ("p", Given("a", 2, 3))]


@pytest.mark.parametrize("where", ["memory", "file"])
def test_it_answers_as_the_pure_one_does(where, tmp_path):
    service = MemoryService(Journal()) if where == "memory" else FileService(Journal(), tmp_path / "j.json")
    assert ask(service, *ASKED) == ANSWERED


def test_what_it_answered_is_there_for_the_next_process(tmp_path):
    ask(FileService(Journal(), tmp_path / "new" / "j.json"), *ASKED)
    again = FileService(Journal(), tmp_path / "new" / "j.json")
    assert again.read() == JournalState(4, {"a": (2, 3), "b": (1, 2)})
    assert ask(again, Next("c", 1)) == [("p", Given("c", 1, 4))]


def test_it_is_on_the_disk_before_it_is_answered(tmp_path):
    path, told = tmp_path / "j.json", []
    service = FileService(Journal(), path)
    asyncio.run(service("p", Next("a", 1), lambda party, answer: told.append(json.loads(path.read_bytes()))))
    assert told == [{"service": "journal", "state": {"next": 2, "last": {"a": [1, 1]}}}]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"service": "journal"}', '{"service": "journal", "state": {"next": "x"}}']
)
def test_a_damaged_file_is_named_with_what_to_do(content, tmp_path):
    path = tmp_path / "j.json"
    path.write_text(content)
    with pytest.raises(FileDamaged, match=r"j\.json: is no state of journal .*restore it from a copy"):
        ask(FileService(Journal(), path), Next("a", 1))
    assert path.read_text() == content


def test_another_services_file_is_refused(tmp_path):
    path = tmp_path / "j.json"
    path.write_text('{"service": "vault", "state": {}}')
    with pytest.raises(FileDamaged, match="is of the service 'vault'; give journal another file"):
        FileService(Journal(), path).read()


PROGRAM = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from made_up.machines import Journal, Next
    from statemachines.drivers.files import FileService
    service = FileService(Journal(), Path(sys.argv[1]))
    for n in range(1, int(sys.argv[3]) + 1):
        (given,) = service.carry_out(Next(sys.argv[2], n))
        print(given.number, flush=True)
    """
)


def process(path, name, count):
    command = [sys.executable, "-c", PROGRAM, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())


def test_processes_share_it_and_nobody_gets_what_another_got(tmp_path):
    path = tmp_path / "j.json"
    both = [process(path, name, 60) for name in "ab"]
    said = [[int(line) for line in one.communicate(timeout=120)[0].split()] for one in both]
    assert sorted(said[0] + said[1]) == list(range(1, 121))


def test_whoever_is_killed_leaves_a_whole_state_and_no_lock(tmp_path):
    path = tmp_path / "j.json"
    heard = 0
    for life in range(4):
        with process(path, f"t{life}", 10_000) as one:
            for _ in range(5):
                heard = int(one.stdout.readline())
            one.send_signal(signal.SIGKILL)
        assert FileService(Journal(), path).read().next > heard, "what was answered is there"
    (given,) = FileService(Journal(), path).carry_out(Next("last", 1))
    assert given.number > heard
