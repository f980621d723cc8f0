"""examples/lock_service: a distribution of its own, installed as anybody would, gets everything."""

import ast
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from statemachines.drivers.lives import begin_log
from statemachines.trace.log import kill_row

EXAMPLE = Path(__file__).parents[2] / "examples" / "lock_service"
INSTALL = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def gapless(tmp_path_factory):
    """The command, where the distribution is installed; a call gives the exit code and what was said."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("work")
    subprocess.run([*INSTALL, "--no-deps", "--no-build-isolation", "--target", str(site), str(EXAMPLE)], check=True)
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": path}

    def run(*arguments, of=("-m", "statemachines")):
        done = subprocess.run(
            [sys.executable, *of, *arguments], cwd=folder, env=environment, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    run.folder, run.environment = folder, environment
    return run


def test_it_imports_public_names_alone():
    private = []
    for path in (EXAMPLE / "lock_service").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("statemachines"):
                private += [
                    f"{path.name}: {node.module}.{name.name}" for name in node.names if name.name.startswith("_")
                ]
    assert private == []


def test_it_is_shown_with_its_clauses(gapless):
    assert "server, holder" in gapless("show")[1]
    code, said = gapless("show", "lock_service/server")
    assert code == 0
    assert "LK-03  The first to ask gets the lock, under the next token" in said


@pytest.mark.long
def test_its_own_tests_pass(gapless):
    """Those of each clause; what Hypothesis plays with both machines takes longer, and is for who changes them."""
    clauses = ("-k", "lk or times", str(EXAMPLE / "tests"))
    code, said = gapless("-q", "-p", "no:cacheprovider", *clauses, of=("-m", "pytest"))
    assert code == 0, said


@pytest.mark.long
def test_simulated_under_every_fault_it_holds(gapless):
    code, said = gapless("campaign", "lock_storm", "--seeds", "10")
    assert (code, "10 of 10 runs held" in said) == (0, True), said


@pytest.mark.long
def test_without_tokens_a_run_fails_is_shrunk_and_repeated(gapless):
    code, said = gapless("campaign", "no_tokens", "--seeds", "6")
    assert code == 1, said
    (path,) = re.findall(r"gapless replay (\S+)", said)
    code, again = gapless("replay", path)
    assert code == 1
    assert "VIOLATED S2: holder-" in again
    assert "writes under token" in again


@pytest.mark.long
def test_explored_it_holds_as_its_certificate_says(gapless):
    path = EXAMPLE / "lock_service" / "certificates" / "quiet-small.json"
    code, said = gapless("check", "--certificate", str(path))
    assert (code, "the same; checked within these bounds: no-error, S1, S2" in said) == (0, True), said


def test_explored_what_its_server_declares_of_itself_is_judged(gapless):
    """A promise that is not kept is found, though no system asks for it."""
    lines = (
        "from lock_service.server import HELD, SERVER",
        "from lock_service.spec import SPEC",
        "from statemachines.kernel import Invariant",
        "SERVER.invariants = (Invariant('lets-nobody-in', 'LK-99', lambda record: record.status is not HELD),)",
    )
    (gapless.folder / "promising.py").write_text("\n".join(lines))
    code, said = gapless("check", "promising:SPEC", "--system", "quiet")
    assert (code, "VIOLATED server:lets-nobody-in: lock_service/server declares it" in said) == (1, True), said


@pytest.mark.long
def test_explored_without_tokens_the_one_that_stood_still_writes_after_its_lease(gapless):
    code, said = gapless("check", "lock_service", "--system", "pause", "--variant", "no_tokens", "--json")
    assert code == 1
    result = json.loads(said)[0]
    assert result["broken"] == "S2"
    assert "vault takes write" in "".join(result["counterexample"])


@pytest.mark.long
def test_d_240_its_counterexample_is_followed_in_the_simulator_and_on_the_runtime(gapless):
    """Without tokens a write that was held up comes after one of the next holder: no fault is needed for that."""
    code, said = gapless(
        "check", "lock_service", "--system", "quiet", "--variant", "no_tokens", "--script", "late.json"
    )
    assert (code, "gapless replay late.json" in said) == (1, True), said
    for where in ((), ("--runtime", "--trace", "replayed")):
        code, said = gapless("replay", "late.json", *where)
        assert (code, "followed 13 of 13 steps\nVIOLATED S2: vault:" in said) == (1, True), said
    code, said = gapless("replay", "late.json", "--runtime", "--variant", "settled")
    assert (code, "S2 does not break here, nor does anything else" in said) == (0, True), said
    code, said = gapless("analyze", "replayed", "--engine=local")
    assert code == 0, said
    assert re.search(r"rows +rows +held", said)


@pytest.mark.long
def test_processes_over_tcp_survive_sigkill_and_their_trace_is_judged(gapless):
    folder, running = gapless.folder, []

    def start(*arguments):
        command = [sys.executable, "-m", "statemachines", "node", *arguments, "--state", "lives", "--trace", "trace"]
        process = subprocess.Popen(command, cwd=folder, env=gapless.environment, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    def heard(process, word):
        for line in process.stdout:
            if line.startswith(word):
                return line.split()[-1]
        raise AssertionError(f"it ended before it said {word}")

    try:
        server = start("lock_service/server", "--listen", "127.0.0.1:0")
        address = heard(server, "listening")
        holder = ("lock_service/holder", "--vault", "vault.json", "--server", address)
        one = start(*holder, "--name", "holder-1")
        first = int(heard(one, "locked"))
        one.kill()
        one.wait()
        with begin_log(folder / "trace", "nemesis~1") as nemesis:
            nemesis.write([kill_row(time.time_ns(), "holder-1", folder / "trace")])
        two = start(*holder, "--name", "holder-2")
        assert int(heard(two, "locked")) > first
        server.kill()
        server.wait()
        heard(two, "lost")
        start("lock_service/server", "--listen", address)
        assert int(heard(two, "locked")) > first + 1
    finally:
        for process in running:
            process.terminate()
            process.communicate()
    code, said = gapless("analyze", "trace", "--engine=local")
    assert code == 0, said
    assert re.search(r"rows +rows +held", said)
    assert re.search(r"tokens +properties +held +[3-9]", said), said
    assert (folder / "out" / "report" / "index.html").stat().st_size > 10_000


@pytest.mark.long
def test_a_trace_of_it_is_said_to_be_of_a_protocol_that_is_not_installed(gapless, tmp_path):
    code, _ = gapless("campaign", "lock_storm", "--seeds", "1", "--trace", str(tmp_path / "trace"))
    assert code == 0
    without = {key: value for key, value in gapless.environment.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "statemachines", "analyze", str(tmp_path / "trace"), "--engine=local"],
        cwd=tmp_path, env=without, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr
    assert "lock_service" in done.stdout + done.stderr
