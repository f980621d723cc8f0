"""Files of permissions and of passwords: what a line allows, and which lines are refused.

Who is asked, and what its error or silence means.
"""

import asyncio
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import run_async

from statemachines import cli
from statemachines.drivers import password_file
from statemachines.drivers.authority import Authority
from statemachines.drivers.identity import Identity
from statemachines.drivers.password_file import PasswordFile, hash_password
from statemachines.drivers.permission_file import Permission, PermissionFile
from statemachines.kernel import ConfigurationError

ALICE = Identity(frozenset({"alice"}))
SENSOR = Identity(frozenset({"sensor-1", "sensor-1.plant"}), True)
NOBODY = Identity()


def written(path, text):
    path.write_text(text)
    return path


@pytest.fixture
def rights(tmp_path):
    """What most tests ask."""
    text = """
    # who      may        what
    *          connect    {user}
    alice      connect    tablet-*
    *          publish    devices/{client}/#
    *          subscribe  users/{user}/+
    alice      subscribe  $share/+/jobs/#
    *          subscribe  public/#
    alice      publish    notes of alice/#
    """
    return PermissionFile(written(tmp_path / "rights.txt", text)).is_allowed


@pytest.mark.parametrize(
    ("identity", "action", "client", "topic", "is_allowed"),
    [
        (ALICE, "connect", "alice", "", True),
        (ALICE, "connect", "tablet-9", "", True),
        (ALICE, "connect", "tablet", "", False),
        (NOBODY, "connect", "tablet-9", "", False),
        (NOBODY, "connect", "", "", False),
        (SENSOR, "connect", "sensor-1.plant", "", True),
        (ALICE, "publish", "tablet-9", "devices/tablet-9/state", True),
        (ALICE, "publish", "tablet-9", "devices/tablet-8/state", False),
        (ALICE, "publish", "", "devices//state", False),
        (ALICE, "publish", "+", "devices/a/state", False),
        (ALICE, "publish", "#", "devices/a", False),
        (ALICE, "publish", "a/b", "devices/a/b/c", False),
        (ALICE, "publish", "{user}", "devices/alice/c", False),
        (ALICE, "publish", "x", "notes of alice/today", True),
        (ALICE, "subscribe", "x", "users/alice/inbox", True),
        (ALICE, "subscribe", "x", "users/alice/+", True),
        (ALICE, "subscribe", "x", "users/+/inbox", False),
        (ALICE, "subscribe", "x", "users/alice/#", False),
        (SENSOR, "subscribe", "x", "users/sensor-1.plant/inbox", True),
        (Identity(frozenset({"+"})), "subscribe", "x", "users/alice/inbox", False),
        (Identity(frozenset({"*"})), "connect", "tablet-1", "", False),
        (Identity(frozenset({"$SYS"})), "subscribe", "x", "users/$SYS/inbox", False),
        (ALICE, "subscribe", "x", "$share/g/jobs/#", True),
        (NOBODY, "subscribe", "x", "$share/g/jobs/#", False),
        (ALICE, "subscribe", "x", "jobs/#", False),
        (NOBODY, "subscribe", "x", "public/#", True),
        (NOBODY, "subscribe", "x", "#", False),
        (NOBODY, "publish", "x", "public/a", False),
    ],
)
def test_PS_450_a_line_allows_what_it_covers_and_nothing_else(rights, identity, action, client, topic, is_allowed):
    assert rights(identity, action, client, topic) is is_allowed


HOSTILE = st.text(st.sampled_from("a/+#$*{}user client"), max_size=12)


@given(HOSTILE, HOSTILE, HOSTILE)
def test_PS_450_no_name_that_a_client_takes_widens_a_line(user, client, topic):
    table = {
        ("*", "publish"): (Permission("devices/{client}/#"), Permission("{user}/{client}")),
        ("*", "connect"): (Permission("{user}-", True),),
    }
    file = PermissionFile.__new__(PermissionFile)
    file._table = table
    identity = Identity(frozenset({user}))
    if file.is_allowed(identity, "publish", client, topic):
        assert topic in (f"devices/{client}", f"{user}/{client}") or topic.startswith(f"devices/{client}/")
        assert client
        assert "/" not in client
    if file.is_allowed(identity, "connect", client, ""):
        assert user
        assert client.startswith(f"{user}-")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("alice publish", "must be USER ACTION WHAT"),
        ("alice read a/b", "has the action 'read'; there are connect, subscribe, publish"),
        ("alice publish a/#/b", "has '#' before its last level"),
        ("alice publish a+", "a wildcard stands for a whole level"),
        ("alice publish {name}/#", "only {user} and {client} stand for something"),
        ("alice connect {client}", "say * where that is meant"),
        ("alice subscribe $share/jobs", "is of a group and has no filter"),
        ("alice publish a\0", "character of number 0"),
        ("alice publish " + "a/" * 200, "at most 128 levels"),
    ],
)
def test_PS_454_a_bad_line_is_refused_by_its_number_and_the_file_of_before_stays(tmp_path, caplog, line, why):
    path = written(tmp_path / "rights.txt", "alice publish a/#\n")
    file = PermissionFile(path)
    written(path, f"alice publish b/#\n\n{line}\nbob publish c\n")
    assert not file.reload()
    assert f"{path}, line 3" in caplog.text
    assert why in caplog.text
    assert "stay in force" in caplog.text
    assert file.is_allowed(ALICE, "publish", "x", "a/b")
    assert not file.is_allowed(ALICE, "publish", "x", "b/b")
    with pytest.raises(ConfigurationError, match=re.escape(f"{path}, line 3")):
        PermissionFile(path)
    written(path, "alice publish b/#\n")
    assert file.reload()
    assert file.is_allowed(ALICE, "publish", "x", "b/b")
    assert not file.is_allowed(ALICE, "publish", "x", "a/b")


def test_PS_454_a_file_that_is_gone_no_text_or_anybodys_changes_nothing(tmp_path, caplog):
    path = written(tmp_path / "rights.txt", "alice publish a/#\n")
    file = PermissionFile(path)
    path.write_bytes(b"alice publish \xff\n")
    assert not file.reload()
    assert "line 1': is no UTF-8: it has the byte 0xff" in caplog.text
    path.write_bytes(b"#" * (4 * 2**20 + 1))
    assert not file.reload()
    assert "has more than" in caplog.text
    written(path, "alice publish a/#\n").chmod(0o666)
    assert not file.reload()
    assert "others may write it" in caplog.text
    path.unlink()
    assert not file.reload()
    assert "cannot be read" in caplog.text
    assert file.is_allowed(ALICE, "publish", "x", "a/b")


# -- passwords --------------------------------------------------------------------------------------------------------


def users(path, *lines):
    path.touch(0o600)
    path.write_text("\n".join(lines))
    return path


@pytest.mark.long
async def test_PS_458_a_user_is_who_knows_the_password(tmp_path, monkeypatch):
    monkeypatch.setattr(password_file, "WAITING_MAX", 3 * password_file.USER_SHARE)
    line = hash_password("alice", "correct horse")
    assert "correct" not in line
    assert line != hash_password("alice", "correct horse")
    file = PasswordFile(users(tmp_path / "users.txt", "# users", line))
    crowd = await asyncio.gather(*(file.check_password("alice", b"correct horse") for _ in range(5)))
    assert crowd == [True] * 3 + [False] * 2
    assert await file.check_password("alice", b"correct horse")
    assert not await file.check_password("alice", b"correct horse ")
    assert not await file.check_password("bob", b"correct horse")
    assert not await file.check_password("", b"")
    assert not await file.check_password("alice", None)
    assert not await file.check_password(None, b"correct horse")
    assert not await file.check_password("alice", b"a" * 10_000)


def test_PS_458_a_file_of_passwords_is_private_and_its_bad_lines_are_refused(tmp_path, caplog):
    good = hash_password("alice", "correct horse")
    path = users(tmp_path / "users.txt", good)
    file = PasswordFile(path)
    kind, parts = "alice:scrypt", good.split(":")
    for bad in (
        "alice",
        "alice:secret",
        good.replace("scrypt", "md5"),
        good.replace(":16384:", ":16383:"),
        good.replace(":16384:", ":1073741824:"),
        f"{kind}:16384:8:999999999:{parts[-2]}:{parts[-1]}",
        f"{kind}:16384:8:1:AAAA:{parts[-1]}",
        f"{kind}:16384:8:1:{parts[-2]}:%%%",
        good[good.index(":") :],
    ):
        users(path, "# users", bad)
        caplog.clear()
        assert not file.reload()
        assert f"{path}, line 2" in caplog.text
        assert "the users of before stay" in caplog.text
    users(path, good, hash_password("alice", "another"))
    with pytest.raises(ConfigurationError, match=r"line 2.*has the user 'alice' once more"):
        PasswordFile(path)
    users(path, good)
    assert file.reload()
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="others may read or write it"):
        PasswordFile(path)


def test_PS_458_gapless_password_prints_a_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    assert cli.run(["password", "alice"]) == 0
    file = PasswordFile(users(tmp_path / "users.txt", capsys.readouterr().out))
    assert asyncio.run(file.check_password("alice", b"correct horse"))
    for user in ("", "*", "a b", "a:b", "#a", "a/b", "{user}", "a\n", "a" * 300):
        monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
        assert cli.run(["password", "--", user]) == 2
        assert "user = " in capsys.readouterr().err
    for password in ("\n", "a" * 5_000):
        monkeypatch.setattr("sys.stdin", io.StringIO(password))
        assert cli.run(["password", "alice"]) == 2
        assert "password = '...'" in capsys.readouterr().err


async def ask(authority, identity=ALICE, action="publish", client="tablet", topic="a/b"):
    answer = asyncio.get_running_loop().create_future()
    authority.check(identity, action, client, topic, answer.set_result)
    return await answer


def run(work, *given, **more):
    async def main():
        authority = Authority(*given, **more)
        try:
            await work(authority)
        finally:
            await authority.close()

    run_async(main())


@pytest.mark.parametrize("answer", [None, 1, "yes", [True], False])
def test_PS_451_whatever_is_not_true_denies(answer):
    async def work(authority):
        assert not await ask(authority)

    run(work, lambda *given: answer)


def test_PS_451_an_error_of_a_hook_denies_and_is_logged_once(caplog):
    def fail(*given):
        raise SystemExit(3)

    async def fail_async(*given):
        raise asyncio.CancelledError

    async def work(authority):
        for _ in range(10):
            assert not await ask(authority)

    for one in (fail, fail_async, lambda: True):
        caplog.clear()
        run(work, one)
        assert caplog.text.count("the authorisation hook failed, which denies") == 1


def test_PS_451_an_async_hook_that_is_silent_denies():
    async def say_nothing(*given):
        await asyncio.Event().wait()

    async def deny(authority):
        assert not await ask(authority)

    run(deny, say_nothing, limit_s=0.01)


def test_what_cannot_be_an_authority_is_refused():
    with pytest.raises(ConfigurationError, match=r"authorize = 'rights\.txt'"):
        Authority("rights.txt")
    with pytest.raises(ConfigurationError, match="authorize_s = 0"):
        Authority(limit_s=0)
