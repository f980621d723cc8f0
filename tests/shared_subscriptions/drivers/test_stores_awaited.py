"""A database that is not there when somebody needs it first is waited for, as it is later (SS-261)."""

import asyncio
import contextlib
import socket
import struct
import threading

import pytest

from statemachines import cli
from statemachines.drivers.shared_subscriptions import groups, open_stores
from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore, PostgresStreamStore
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore
from statemachines.drivers.sql import awaited
from statemachines.drivers.sql.failure import StoreAway, StoreUnavailable
from statemachines.kernel import ConfigurationError
from statemachines.testing.process_harness import free_port


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(open_stores, "AGAIN_S", 0.001)


def wait(*failures, patience_s=60.0):
    """What became of it, and how often it was tried."""
    left, tried = list(failures), []

    def make(store):
        tried.append(store)
        if left:
            raise left.pop(0)
        return "opened"

    return asyncio.run(open_stores.open_store_patiently(make, "db", who="c1", patience_s=patience_s)), len(tried)


@pytest.mark.parametrize(
    "command",
    [
        "group declare $shared/g/#", "group list", "group destroy $shared/g/#", "group parked $shared/g/#",
        "group skip $shared/g/# s", "sessions list", "sessions describe c", "sessions kick c", "sessions purge c",
        "sessions clock",
    ],
)  # fmt: skip
def test_SS_261_PS_201_one_operation_of_a_command_waits_no_longer_than_its_patience(command, monkeypatch, capsys):
    monkeypatch.setattr(groups, "ONE_OPERATION_S", 0.0)
    monkeypatch.setattr(awaited, "ONE_OPERATION_S", 0.0)
    assert cli.run((*command.split(), "--store", f"postgresql://u@127.0.0.1:{free_port()}/d")) == 2
    assert "cannot be reached" in capsys.readouterr().err


class Refusing(threading.Thread):
    """A server that lets nobody in, and says why as PostgreSQL does."""

    def __init__(self, code, why):
        super().__init__(daemon=True)
        body = b"SFATAL\0VFATAL\0C" + code.encode() + b"\0M" + why.encode() + b"\0\0"
        self.refusal = b"E" + struct.pack(">I", len(body) + 4) + body
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = (
            f"postgresql://u:secret@127.0.0.1:{self.listening.getsockname()[1]}/d?sslmode=disable&gssencmode=disable"
        )

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                wire, _ = self.listening.accept()
                with wire, contextlib.suppress(OSError):
                    wire.recv(4_096)
                    wire.sendall(self.refusal)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.join()


@pytest.mark.parametrize(
    ("code", "why", "raised"),
    [
        ("57P03", "the database system is starting up", StoreUnavailable),
        ("57P03", "the database system is not yet accepting connections", StoreUnavailable),
        ("57P03", "the database system is in recovery mode", StoreUnavailable),
        ("57P03", "the database system is shutting down", StoreUnavailable),
        ("53300", "sorry, too many clients already", StoreUnavailable),
        ("28P01", 'password authentication failed for user "u"', ConfigurationError),
        ("3D000", 'database "d" does not exist', ConfigurationError),
    ],
)
@pytest.mark.parametrize("store", [PostgresGroupStore, PostgresStreamStore])
def test_SS_261_what_a_server_says_that_may_let_us_in_later(store, code, why, raised):
    with Refusing(code, why) as server, pytest.raises(raised) as found:
        store(server.url)
    assert not isinstance(found.value, StoreAway)
    assert why in str(found.value)
    assert "secret" not in str(found.value)


async def test_who_tries_again_keeps_no_store_of_each_time(tmp_path, monkeypatch):
    opened = []

    def groups(path):
        opened.append(SqliteGroupStore(path))
        return opened[-1]

    def streams(path):
        raise StoreUnavailable("it is busy")

    module = "statemachines.drivers.shared_subscriptions.sqlite"
    monkeypatch.setattr(f"{module}.SqliteGroupStore", groups)
    monkeypatch.setattr(f"{module}.SqliteStreamStore", streams)
    with pytest.raises(StoreUnavailable):
        open_stores.open_stores(tmp_path / "x.db")

    with pytest.raises(StoreUnavailable):
        open_stores.open_stores(tmp_path / "x.db")
    assert [one._database._closed for one in opened] == [True, True]
