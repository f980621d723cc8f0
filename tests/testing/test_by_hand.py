"""A closed system moved by hand: the application, single messages, faults; what breaks is raised and told.

Fixed draws: what a search draws does not change with what the process has loaded.

The soak: one small round of everything, and what it writes down.

The fault proxy: bytes go through as they came, and each fault does what its name says and nothing else.
"""

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from lock_toy import FREE, HELD, HOLDING, IDLE, WAITING, lock_system
from symmetric_system import backwards, toy
from waiting import HANG_S, pause_async, until_async

from statemachines.kernel import ConfigurationError
from statemachines.testing import by_hand, fault_proxy
from statemachines.testing.by_hand import ByHand, delay, drop
from statemachines.testing.closed_run import PropertyBroken
from statemachines.testing.fault_proxy import CHUNK_MAX, FaultProxy, run_in_thread
from statemachines.testing.system_test import SystemTest

sys.path.insert(0, str(Path(__file__).parents[1] / "spec"))

sys.path.pop(0)

ONE, TWO = "holder-1", "holder-2"
README = Path(by_hand.__file__).with_name("README.md")


def has_the_lock(run, holder):
    return run.call("want", at=holder).deliver("acquire", to="lock").deliver("granted", to=holder)


def test_an_application_is_driven_by_hand():
    run = has_the_lock(ByHand(lock_system()), ONE)
    assert (run.record("lock").status, run.record(ONE).status, run.record(TWO).status) == (HELD, HOLDING, IDLE)
    run.call("store", at=ONE)
    assert run.local("store").state.token == 1
    run.fire("lease_end", at=ONE).fire("expiry")
    has_the_lock(run, TWO)
    assert "both hold" in run.seen_properties


def write_late(honours):
    """The first holder's write is on its way for so long that the second one's overtakes it."""
    run = has_the_lock(ByHand(lock_system(honours=honours, remote=True)), ONE)
    run.call("store", at=ONE).fire("lease_end", at=ONE).fire("expiry")
    has_the_lock(run, TWO).call("store", at=TWO)
    return run.deliver("write", sender=TWO).deliver("write", sender=ONE)


def test_a_late_write_is_refused_where_tokens_are_honoured():
    assert write_late(honours=True).local("store").state.token == 2


def test_a_late_write_breaks_the_fence_where_they_are_not():
    with pytest.raises(PropertyBroken) as caught:
        write_late(honours=False)
    assert caught.value.what == "fenced"


def test_messages_are_lost_doubled_and_held_back_by_hand():
    run = ByHand(lock_system()).call("want", at=ONE)
    run.duplicate("acquire").deliver("acquire")
    assert run.record("lock").token == 1, "the copy found the lock held"
    run.drop("granted")
    assert run.record(ONE).status == WAITING
    run.call("want", at=TWO).hold_back("acquire", sender=TWO)
    with pytest.raises(ConfigurationError, match="'drop granted': cannot be made; there are: drop acquire"):
        run.drop("granted")


def test_a_rule_that_holds_back_changes_the_order():
    """The first word comes after the others, and is broken where order matters."""
    one = toy({"in_flight": 3}, last=3, properties=(backwards(),), observed=True)
    late = delay("note", nth=1, moves=100)
    with pytest.raises(PropertyBroken) as caught:
        ByHand(one, late).calm()
    assert (caught.value.what, late.hit) == ("in order", 1)
    assert ByHand(one).calm().play.broken == ()


def test_words_that_fit_several_moves_are_refused_with_the_moves():
    run = ByHand(lock_system()).call("want", at=ONE)
    run.call("want", at=TWO)
    with pytest.raises(ConfigurationError, match=f"may be several: deliver acquire from {ONE} to lock, deliver"):
        run.deliver("acquire")
    with pytest.raises(ConfigurationError, match="'call store to holder-1': cannot be made; there are: none"):
        run.call("store", at=ONE)
    with pytest.raises(ConfigurationError, match="component = 'nobody': unknown; there are: lock, holder-1"):
        run.record("nobody")
    with pytest.raises(ConfigurationError, match="must be 1 or more, or 0"):
        drop("note", nth=-1)
    assert run.record("lock").status == FREE


def test_the_example_of_the_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "ByHand(" in block)
    exec(compile(code, str(README), "exec"), {**globals(), "SystemTest": SystemTest})
    assert "call want to holder-2" in capsys.readouterr().out


PROGRAM = """
import sys
from contextlib import nullcontext
from hypothesis import HealthCheck, given, settings, strategies as st
from statemachines.testing.bug_search import fix_draws

@settings(max_examples=200, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=20), st.integers(), st.floats())
def look(text, whole, real):
    seen.append(repr((text, whole, real)))

def drawn():
    seen.clear()
    look()
    return list(seen)

seen = []
with fix_draws() if sys.argv[1] == "fixed" else nullcontext():
    before = drawn()
    import full_of_constants
    after = drawn()
print(before == after)
"""


def draws_stay(folder, how):
    """Whether two runs draw the same, between which a local module is loaded."""
    lines = [f"N{number} = {10**9 + number}, 'word{number}', {number}.25" for number in range(300)]
    (folder / "full_of_constants.py").write_text("\n".join(lines))
    (folder / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py", how], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


@pytest.mark.long
def test_draws_do_not_change_with_what_is_loaded(tmp_path):
    assert draws_stay(tmp_path, "fixed")


@pytest.mark.long
def test_without_it_they_do(tmp_path):
    """What this guards against is still there; when it is not, `fixed_draws` can go."""
    assert not draws_stay(tmp_path, "as usual")


SOAK = Path(__file__).resolve().parents[2] / "tools" / "soak.py"


@pytest.mark.long
def test_one_round_does_something_of_everything_and_goes_on_from_the_last(tmp_path):
    log = tmp_path / "out" / "soak.jsonl"
    log.parent.mkdir()
    log.write_text('{"seed":0}\n')
    command = [sys.executable, str(SOAK), "--minutes", "0", "--seeds", "1", "--frames", "500", "--inputs", "200",
               "--examples", "2", "--crashes", "2", "--lives", "20", "--states", "5000", "--twice", "1",
               "--damages", "1", "--hurts", "2", "--storm", "1", "--slow-samples", "0", "--topics", "50",
               "--cluster", "0", "--managers", "3", "--breaks", "200"]  # fmt: skip
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "0 violations" in ended.stdout
    _, last = (json.loads(line) for line in log.read_text().splitlines())
    assert (last["seed"], last["rounds"], last["runs"], last["real_rounds"], last["frames"]) == (1, 1, 2, 1, 500)
    assert (last["violations"], last["lines"]) == (0, 1_800)
    assert min(last["faults"], last["delivered"], last["steps_judged"], last["frames_refused"], last["moves"]) > 0
    assert last["restored"] == 220
    assert last["explored"] > 500
    assert last["bugs_found"] == 1
    assert 0 < last["damages_seen"] <= last["damages"]
    assert (last["crash_runs"], last["lives"]) == (2, 20)
    assert min(last["lives_killed"], last["through_queue"]) > 0
    assert (last["nodes_hurt"], last["hurt_on_postgres"], last["hurt_in_a_run"]) == (2, 2, 2)
    assert "2 faults of nodes of sessions and their store (2 on PostgreSQL; 2 in one run)" in ended.stdout
    assert last["through_sessions"] > 10
    assert last["hurt_sharing"] + last["calm_moves"] >= 1
    assert last["through_groups"] > 10
    assert last["many_topics"] == 55
    assert sum(last[name] for name in ("kills", "stops", "cuts", "partitions", "hostile_connections")) > 0


LARGE = bytes(range(256)) * 4_000


class Target:
    """Keeps what comes; says what `say` is given."""

    def __init__(self):
        self.got = bytearray()
        self.ended = 0
        self.writers = []

    async def serve(self, reader, writer):
        self.writers.append(writer)
        try:
            while data := await reader.read(CHUNK_MAX):
                self.got += data
        except ConnectionError:
            pass
        self.ended += 1
        writer.close()

    def say(self, data):
        self.writers[-1].write(data)


@asynccontextmanager
async def bed(seed=0):
    """A target, a proxy before it, a client connected through it."""
    target = Target()
    server = await asyncio.start_server(target.serve, "127.0.0.1", 0)
    async with FaultProxy(server.sockets[0].getsockname()[:2], seed=seed) as proxy:
        reader, writer = await asyncio.open_connection(*proxy.address)
        await until_async(lambda: target.writers)
        yield proxy, target, reader, writer
        writer.close()
    server.close()
    await server.wait_closed()


async def ends(reader):
    """Whether nothing more comes but the end, in good order or not."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def test_a_connection_is_cut_after_so_many_bytes():
    async with bed() as (proxy, target, reader, writer):
        proxy.cut_after("up", 100_001)
        writer.write(LARGE)
        await until_async(lambda: target.ended)
        assert target.got == LARGE[:100_001]
        assert await ends(reader)
        _, second = await asyncio.open_connection(*proxy.address)
        second.write(LARGE)
        await until_async(lambda: len(target.got) == 100_001 + len(LARGE))
        second.close()


async def test_corruption_changes_that_many_bytes_and_is_repeatable():
    async def spoilt(seed):
        async with bed(seed) as (proxy, target, _, writer):
            proxy.corrupt("up", 3)
            writer.write(LARGE[:1_000])
            await until_async(lambda: len(target.got) == 1_000)
            assert sum(one != other for one, other in zip(target.got, LARGE, strict=False)) == 3
            return bytes(target.got)

    first = await spoilt(1)
    assert first == await spoilt(1)
    assert first != await spoilt(2)


async def test_delay_and_throttle_take_their_time_and_keep_the_order():
    async with bed() as (proxy, target, _, writer):
        loop = asyncio.get_running_loop()
        proxy.delay("up", 100, jitter_ms=50)
        began = loop.time()
        for number in range(20):
            writer.write(bytes([number]))
            await pause_async(0.001, "each is a packet of its own")
        await until_async(lambda: len(target.got) == 20)
        assert loop.time() - began >= 0.1
        assert target.got == bytes(range(20))
        proxy.heal()
        proxy.throttle("up", 20_000)
        began = loop.time()
        writer.write(bytes(4_000))
        await until_async(lambda: len(target.got) == 4_020)
        assert loop.time() - began >= 0.15


async def test_a_target_that_is_not_there_and_a_new_one():
    async with bed() as (proxy, target, _, _):
        there = proxy.target
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            proxy.target = nobody.getsockname()
            reader, writer = await asyncio.open_connection(*proxy.address)
            assert await ends(reader)
            writer.close()
        proxy.target = there
        _, writer = await asyncio.open_connection(*proxy.address)
        writer.write(b"hello")
        await until_async(lambda: target.got == b"hello")
        writer.close()


async def test_more_connections_than_allowed_are_refused(monkeypatch):
    monkeypatch.setattr(fault_proxy, "CONNECTIONS_MAX", 1)

    async with bed() as (proxy, _, _, _):
        reader, writer = await asyncio.open_connection(*proxy.address)
        assert await ends(reader)
        assert proxy.connections == 1
        writer.close()


async def test_a_way_that_is_none_is_named():
    async with bed() as (proxy, *_):
        with pytest.raises(ConfigurationError, match="way = 'left': must be one of up, down, both"):
            proxy.block("left")


def test_it_runs_beside_a_test_that_waits():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(HANG_S)
        with run_in_thread(server.getsockname()) as proxy, socket.create_connection(proxy.address, HANG_S) as client:
            there, _ = server.accept()
            there.settimeout(0.1)
            proxy.block("up")
            client.sendall(b"x")
            with pytest.raises(TimeoutError):
                there.recv(1)
            proxy.heal()
            there.settimeout(HANG_S)
            assert there.recv(1) == b"x"
            proxy.cut()
            with contextlib.suppress(ConnectionError):
                assert there.recv(1) == b""
            there.close()
