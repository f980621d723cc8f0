"""What is shown of a database's URL, and of other processes' commands: never a password, however it is written."""

import pytest

from statemachines.drivers.shared_subscriptions.open_stores import open_stores
from statemachines.drivers.sql import sqlite
from statemachines.kernel import ConfigurationError

PASSWORDS = ("hush", "hu?sh", "hu@sh", "hu/sh", "hu#sh", "hu:sh", "hu[sh", "hu sh", "hu%sh", "hu%40sh", "hu'sh")
URLS = (
    "postgresql://u:{}@127.0.0.1:1/db",
    "postgres://u:{}@127.0.0.1:1",
    "postgresql+asyncpg://u:{}@h/db",
    "postgresql://u:{}@127.0.0.1:port/db",
    "postgresql://u@127.0.0.1:1/db?password={}",
    "postgresql://u@127.0.0.1:1/db?sslpassword={}&user=u",
    "postgresql://u@127.0.0.1:1/db?PASSWORD={}",
    "POSTGRESQL://u:{}@127.0.0.1:1/db",
    "mysql://u:{}@127.0.0.1:1/db",
    "sqlite://u:{}@h/x",
    "postgresql:/u:{}@127.0.0.1:1/db",
    "postgresql:u:{}@127.0.0.1:1/db",
    "host=127.0.0.1 port=1 user=u password={} dbname=db",
)


@pytest.mark.parametrize("url", URLS)
def test_no_part_of_a_password_is_shown_and_no_file_is_called_so(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    for password in PASSWORDS:
        with pytest.raises(ConfigurationError) as raised:
            open_stores(url.format(password))
        said = str(raised.value).replace("127.0.0.1", "")
        assert "hu" not in said, said
        assert "sh@" not in said, said
    assert list(tmp_path.iterdir()) == []


def test_who_holds_a_lock_is_named_without_its_password(tmp_path, monkeypatch):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_bytes(b"app\0--password\0hush\0x\x1b")
    monkeypatch.setattr(sqlite, "Path", lambda place: tmp_path / str(place).removeprefix("/proc/"))
    assert sqlite._describe_process("7") == "process 7 (app --password *** x\\x1b)"


@pytest.mark.parametrize(("state", "shown"), [("T", ", which is stopped"), ("S", "")])
def test_a_holder_that_is_stopped_is_told_from_one_that_runs(tmp_path, monkeypatch, state, shown):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(f"7 (an (app) T) {state} 1 7 7 0 -1")
    monkeypatch.setattr(sqlite, "Path", lambda place: tmp_path / str(place).removeprefix("/proc/"))
    assert sqlite._describe_process("7") == f"process 7{shown}"
