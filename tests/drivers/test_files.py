"""A pure service in a file: what it answered is there, for every process, whoever is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap

import pytest
from made_up.machines import Given, Journal, Next
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
