"""The private server of tests: never as root, gone afterwards however its users went, shared where that is wanted."""

from __future__ import annotations

import signal
import time

import psycopg
import pytest
from store_programs import process

from statemachines.kernel import ConfigurationError
from statemachines.testing import postgres
from statemachines.testing.postgres import PostgresServer, run_sql, share_server


def gone(holds):
    deadline = time.monotonic() + 60
    while holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return True


def answers(url):
    try:
        return run_sql(url, "SELECT 1") == [(1,)]
    except psycopg.OperationalError:
        return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
def test_a_server_that_was_stopped_starts_again_with_what_was_committed(own, how):
    url = own.database(f"stop_{how}")
    run_sql(url, "CREATE TABLE t (x integer)")
    run_sql(url, "INSERT INTO t VALUES (1)")
    own.stop(how)
    assert not answers(url)
    own.start()
    assert run_sql(url, "SELECT x FROM t") == [(1,)]


@pytest.fixture(scope="module")
def own():
    with PostgresServer() as server:
        yield server


SHARE = """
import sys
from pathlib import Path
from statemachines.testing.postgres import share_server

with share_server(Path(sys.argv[1])) as url:
    print(url, flush=True)
    sys.stdin.readline()
"""


def test_processes_share_a_server_which_is_gone_when_the_last_one_is(tmp_path):
    directory = tmp_path / "shared"
    with process(SHARE, directory) as a, process(SHARE, directory) as b:
        urls = {child.stdout.readline().strip() for child in (a, b)}
        assert len(urls) == 1
        (url,) = urls
        a.kill()
        a.wait()
        assert answers(url), "the other one still uses it"
    assert gone((directory / "url").exists)
    assert gone(lambda: answers(url))
    with share_server(directory) as again:
        assert answers(again)


def test_where_postgresql_is_missing_its_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(postgres, "DEBIAN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"initdb.*install the package 'postgresql'"):
        PostgresServer()
