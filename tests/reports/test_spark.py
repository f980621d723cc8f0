"""What a task refuses comes back in one line; what a user sets of Spark is kept; the engine follows from the rows.

Spark Connect: the server is sent our code, and gives the same tables; what it cannot do is refused by name.

A cluster: a master and two workers as processes, whose executors have none of our packages, and one that dies.

docs/traces.md names every column of traces and results, with its type; its queries agree in three engines.

One Spark a process: sessions share it, the last one stops it, and nobody stops another's.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from test_judging import made
from waiting import until

from statemachines import cli, registry
from statemachines.cli import Exit, run
from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.spark import environment_archive, spark_task
from statemachines.spark.code_archive import write_code
from statemachines.spark.spark_link import ConnectLink, find_client, set_value
from statemachines.spark.spark_session import SharedSpark
from statemachines.spark.spark_settings import NO_SETTINGS, SparkSettings, is_local, read_settings
from statemachines.testing.spark_cluster import (
    LOOPBACK,
    START_S,
    SparkCluster,
    SparkConnectServer,
    kill_session,
    list_session,
)
from statemachines.trace.row import TRACE
from statemachines_reports import read_result, read_runs, read_trace
from statemachines_reports.foreign_log.log_mapping import read_template
from statemachines_reports.judge import Judges
from statemachines_reports.pipeline import LOCAL, MACROS, SPARK, SPARK_ROWS, analyze, choose_engine
from statemachines_reports.session import Session
from statemachines_reports.tables import Results, make_tables
from statemachines_reports.trace_set import count_task_rows


def refuse_nothing(batches, given):
    yield from batches


def refuse(batches, given):
    raise GaplessError(f"{given.decode()} is refused")
    yield


def lose(batches, given):
    raise FileNotFoundError(2, "No such file or directory", "trace-1.parquet")
    yield


def refusal_of(task):
    """What the driver makes of what a task raises, which comes as the text of a traceback."""
    with pytest.raises(RuntimeError) as raised:
        list(task(iter([1])))
    return str(
        spark_task.find_refusal(Exception(f"An exception\nTraceback ...\nRuntimeError: {raised.value}\n  at Java"))
    )


def test_a_task_does_what_it_is_given():
    assert list(spark_task.make_task(f"{__name__}:refuse_nothing", b"")(iter([1, 2]))) == [1, 2]


def test_an_executor_that_is_not_like_the_driver_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(spark_task, "sys", SimpleNamespace(version_info=(3, 7, 1)))
    other_python = spark_task.make_task(f"{__name__}:refuse_nothing", b"")
    assert "runs Python 3." in refusal_of(other_python)
    assert "and the driver 3.7: set PYSPARK_PYTHON" in refusal_of(other_python)
    monkeypatch.undo()
    monkeypatch.setattr(spark_task, "version", lambda name: "9.9")
    assert "and the driver 9.9: install the same" in refusal_of(spark_task.make_task(f"{__name__}:refuse_nothing", b""))
    monkeypatch.undo()
    said = refusal_of(spark_task.make_task("no_such_package.tasks:judge", b""))
    assert (
        "has no package no_such_package: install it there, or ship an environment (gapless env-archive, spark.archives)"
        in said
    )


def test_what_a_task_refuses_is_one_line():
    assert refusal_of(spark_task.make_task(f"{__name__}:refuse", b"run 7")) == "run 7 is refused"
    said = refusal_of(spark_task.make_task(f"{__name__}:lose", b""))
    assert (
        "cannot read or write trace-1.parquet: No such file or directory; every executor needs the same files" in said
    )
    assert spark_task.find_refusal(Exception("ZeroDivisionError: division by zero")) is None
    mismatch = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than 3.11, PySpark cannot run"
    assert str(spark_task.find_refusal(Exception(mismatch))).endswith(
        "than 3.11: set PYSPARK_PYTHON to the same version"
    )
    lacking = str(spark_task.find_refusal(Exception("ModuleNotFoundError: No module named 'pyarrow'")))
    assert lacking.startswith("the executors have no package pyarrow: install it there")
    started = str(spark_task.find_refusal(Exception('java.io.IOException: Cannot run program "python9": error=2')))
    assert started == "the executors have no Python 'python9': set PYSPARK_PYTHON or spark.pyspark.python"


def test_the_code_is_a_zip_with_the_packages_of_strangers(tmp_path):
    mine = registry.Protocol(name="mine", prefix="MY", machines={"lock": "lock_protocol:LOCK"})
    paths = [write_code(tmp_path, [mine]) for _ in range(2)]
    assert paths[0] == paths[1]
    names = zipfile.ZipFile(paths[0]).namelist()
    assert {"lock_protocol.py", "statemachines/kernel/__init__.py", "statemachines_reports/judge.py"} <= {*names}
    assert [name for name in names if name.endswith(".dist-info/entry_points.txt")]
    other = registry.Protocol(name="other", prefix="OT", machines={"lock": "_struct:LOCK"})
    with pytest.raises(ConfigurationError, match="'_struct': is no package of Python files"):
        write_code(tmp_path, [other])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--conf", "spark.x"), "is no setting of Spark: give spark.KEY=VALUE"),
        (("--conf", "x=1"), "is no setting of Spark: give spark.KEY=VALUE"),
        (("--conf", "spark.x=1", "--conf", "spark.x=2"), "gives spark.x a second value, after '1'"),
        (("--conf", "spark.sql.ansi.enabled=false"), "must be true for our queries"),
        (("--master", "local[1]", "--conf", "spark.master=yarn"), "is not that of --conf spark.master=yarn"),
        (("--engine", "local", "--master", "local[1]"), "is not on Spark, so it has no --master and no --conf"),
    ],
)
def test_options_that_do_not_fit_are_named(tmp_path, capsys, options, says):
    assert run(["analyze", str(tmp_path), "--out", str(tmp_path / "out"), *options]) == Exit.USAGE
    assert says in capsys.readouterr().err


def test_the_engine_follows_from_the_rows_unless_it_is_named():
    small, large = [SimpleNamespace(rows=SPARK_ROWS // 2 - 1)], [SimpleNamespace(rows=SPARK_ROWS // 2)]
    assert choose_engine(small * 2, None, NO_SETTINGS).name == LOCAL
    assert choose_engine(large * 2, None, NO_SETTINGS).name == SPARK
    assert f"{SPARK_ROWS:,} rows; from" in choose_engine(large * 2, None, NO_SETTINGS).why
    assert choose_engine(small, None, SparkSettings("local[1]")).name == SPARK
    assert choose_engine(small, True, NO_SETTINGS).name == SPARK
    assert choose_engine(large, False, SparkSettings("local[1]")).name == LOCAL
    assert [is_local(one) for one in ("local", "local[*]", "local[2, 3]", "local-cluster[2,1,512]", "yarn")] == [
        *[True] * 3,
        *[False] * 2,
    ]
    assert read_settings("yarn", ["spark.a=b=c"]).all_settings == {"spark.master": "yarn", "spark.a": "b=c"}


def test_rows_of_a_task_can_be_named():
    assert count_task_rows(10**9, 2) == 4_000_000
    assert count_task_rows(6_000_000, 2) == 1_000_000
    assert count_task_rows(10**9, 2, "70") == 70
    for named in ("0", "-1", "many"):
        with pytest.raises(ConfigurationError, match=r"spark\.gapless\.rowsPerTask"):
            count_task_rows(10**9, 2, named)


SHOW = """
from statemachines.spark.spark_session import SharedSpark
from statemachines.spark.spark_settings import SparkSettings
with SharedSpark(SparkSettings(conf={"spark.sql.shuffle.partitions": "5"})) as session:
    conf = session.spark.sparkContext.getConf()
    names = ("spark.master", "spark.app.name", "spark.sql.shuffle.partitions", "spark.sql.codegen.wholeStage",
             "spark.driver.host", "spark.ui.enabled")
    print([conf.get(name) for name in names])
    print(session.spark._jvm.System.getProperty("mine"))
"""


@pytest.mark.long
def test_spark_keeps_what_the_user_has_set(tmp_path):
    """The command wins over spark-defaults.conf, which wins over our defaults."""
    mine = {
        "spark.master": "local[1]",
        "spark.app.name": "mine",
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.codegen.wholeStage": "true",
        "spark.driver.extraJavaOptions": "-Dmine=kept",
    }
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in mine.items()))
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(["local[1]", "mine", "5", "true", "127.0.0.1", "false"]), "kept"]


def test_packages_of_spark_connect_that_are_not_here_are_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", None)
    with pytest.raises(GaplessError, match=r"Spark Connect needs .*: install gapless\[connect\]"):
        SharedSpark(SparkSettings("sc://127.0.0.1:1")).__enter__()


class Client:
    """A session of Spark Connect that takes settings of a session alone."""

    def __init__(self):
        self.values = {}
        self.conf = self
        self.sent, self.ended = [], []

    def set(self, key, value):
        if key == "spark.executor.memory":
            raise AnalysisException("static")
        self.values[key] = value

    def get(self, key, default):
        return self.values.get(key, default)

    def addArtifacts(self, path, pyfile):
        self.sent.append((path, pyfile))

    def addTag(self, tag):
        self.tag = tag

    def interruptTag(self, tag):
        self.ended.append(tag)


def test_a_client_of_spark_connect_sends_code_sets_its_session_and_cancels_by_tag(tmp_path):
    client = Client()
    set_value(client, "spark.sql.ansi.enabled", "true", is_needed=True)
    set_value(client, "spark.executor.memory", "3g", is_needed=False)
    assert client.values == {"spark.sql.ansi.enabled": "true"}
    with pytest.raises(ConfigurationError, match="'3g': cannot be set"):
        set_value(client, "spark.executor.memory", "3g", is_needed=True)
    link = ConnectLink(client)
    link.send_code(tmp_path / "code.zip")
    assert client.sent == [(str(tmp_path / "code.zip"), True)]
    assert link.run_job("mine", lambda: 7) == 7
    link.cancel_jobs("mine")
    assert (client.tag, client.ended, link.is_local) == ("mine", ["mine"], False)


CAMPAIGN = ["campaign", "quiet", "--seeds", "3", "--set", "shared_subscriptions.load.messages=5", "--trace"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    before = dict(os.environ)
    server = SparkConnectServer(tmp_path_factory.mktemp("connect"))
    try:
        yield server
    finally:
        server.stop()
        for name in os.environ.keys() - before.keys():  # PySpark notes there that this process is a client
            del os.environ[name]
        os.environ.update(before)
        assert not list_session(server.process.pid)


def tables(out):
    return {path.name: pq.read_table(path) for path in sorted((out / "tables").glob("*.parquet"))}


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_server_of_spark_connect_judges_and_simulates_as_this_process_does(server, tmp_path, capsys):
    """Its tasks have none of our packages: they are sent.  A session that the program has opened stays open."""
    from pyspark.sql import SparkSession

    folder = tmp_path / "local"
    assert cli.run([*CAMPAIGN, str(folder)]) == 0
    there = ["--engine", "spark", "--master", server.address]
    assert cli.run([*CAMPAIGN, str(tmp_path / "spark"), *there]) == 0
    assert contents(tmp_path / "spark") == contents(folder)
    capsys.readouterr()
    assert cli.run(["analyze", str(folder), "--out", str(tmp_path / "far"), *there]) == 0, capsys.readouterr()
    assert cli.run(["analyze", str(folder), "--out", str(tmp_path / "near"), "--engine", "local"]) == 0
    assert tables(tmp_path / "far") == tables(tmp_path / "near")
    mapping, log = tmp_path / "map.toml", tmp_path / "log.ndjson"
    mapping.write_text(read_template("redis").replace("complete = false", "complete = true "))
    log.write_text('{"at": 1, "kind": "publish", "stream": "s", "id": "1-0", "consumer": null}\n')
    capsys.readouterr()
    assert cli.run(["judge", str(log), "--map", str(mapping), "--master", server.address]) == Exit.VIOLATED, (
        capsys.readouterr()
    )
    assert "lost            VIOLATED" in capsys.readouterr().out
    fixed = [*there, "--conf", "spark.executor.memory=3g"]
    assert cli.run(["analyze", str(folder), "--out", str(tmp_path / "far"), *fixed]) == Exit.USAGE
    assert "'3g': cannot be set" in capsys.readouterr().err
    ours = SparkSession.builder.remote(server.address).getOrCreate()
    try:
        assert find_client() is ours
        analyze(folder, tmp_path / "joined", spark=True)
        assert ours.range(3).count() == 3
        assert not ours.catalog.listTables()
        assert tables(tmp_path / "joined") == tables(tmp_path / "near")
        options = ["--follow", "--out", str(tmp_path / "follow")]
        assert cli.run(["analyze", str(folder), *options]) == Exit.USAGE
        assert "is Spark Connect, whose batches are judged at the server" in capsys.readouterr().err
    finally:
        ours.stop()


HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster
    finally:
        cluster.stop()
        assert not [one for process in cluster.processes for one in list_session(process.pid)]


def begin(*arguments):
    """The command, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), **LOOPBACK}
    command = [sys.executable, "-m", "statemachines", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, cwd=HERE, start_new_session=True, **pipes)


def end(process):
    try:
        said, errors = process.communicate(timeout=START_S)
        return process.returncode, said, errors
    finally:
        kill_session(process.pid)


def write_runs(one, folder, runs, about):
    """The run of a trace again and again, a file each."""
    folder.mkdir()
    (rows, table) = (pq.read_table(one / f"{name}-mine.parquet") for name in ("trace", "runs"))
    facts = json.loads(table["parameters"][0].as_py()) | {"folder": about}
    for number in runs:
        numbered = [one.set_column(0, "run", [[number] * len(one)]) for one in (rows, table)]
        place = numbered[1].column_names.index("parameters")
        numbered[1] = numbered[1].set_column(place, "parameters", [[json.dumps(facts)]])
        for name, one in zip(("trace", "runs"), numbered, strict=True):
            pq.write_table(one, folder / f"{name}-{number}.parquet")


@pytest.mark.long
def test_a_worker_that_dies_with_its_executor_changes_no_table(cluster, tmp_path):
    folder = tmp_path / "trace"
    write_runs(made(tmp_path / "one"), folder, range(4), str(tmp_path))
    named = ("--protocol", "paused_lock:PROTOCOL")
    rows = ("--conf", "spark.gapless.rowsPerTask=5")
    process = begin("analyze", folder, "--out", tmp_path / "spark", *named, *cluster.list_options(), *rows)
    try:
        until((tmp_path / "reached").exists, child=process)
        session = int((tmp_path / "reached").read_text())
        assert session in cluster.workers
        kill_session(session)
        (tmp_path / "go").touch()
    finally:
        code, said, errors = end(process)
    assert code == 0, errors
    assert "4 runs, " in said
    code, _, errors = end(begin("analyze", folder, "--out", tmp_path / "local", *named, "--engine", "local"))
    assert code == 0, errors
    assert tables(tmp_path / "spark") == tables(tmp_path / "local")


def contents_of_spark_cluster(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def list_times(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}


def wait_until_amid(folder, process):
    """The process that writes a file, when two files of this folder are whole: its partial file is named after it."""
    begun = until(
        lambda: len(list(folder.glob("trace-*.parquet"))) > 1 and list(folder.glob("trace-*.partial")), child=process
    )
    return int(begun[0].suffixes[-2].partition("-")[2])


@pytest.mark.long
def test_a_worker_that_dies_amid_a_campaign_changes_no_byte(cluster, tmp_path, capsys):
    """Another worker makes its file again.  A campaign that is resumed keeps files that are whole, those of before and
    those of the one that was hurt."""
    own = "shared_subscriptions"
    values = ("phases.safety_s=1", f"{own}.load.messages=20", f"{own}.members.join_s=[]", f"{own}.members.leave_s=[]")
    short = [part for value in values for part in ("--set", value)]
    given = ["campaign", "quiet", "--seeds", "80", *short, "--resume", "--trace"]
    local, folder = tmp_path / "local", tmp_path / "spark"
    assert cli.run([*given, str(local), "--processes", "1"]) == 0
    said = capsys.readouterr().out
    folder.mkdir()
    for path in local.glob("*-000000.parquet"):
        shutil.copy(path, folder)
    kept = list_times(folder)
    process = begin(*given, folder, *cluster.list_options())
    try:
        session = os.getsid(wait_until_amid(folder, process))
        assert session in cluster.workers
        kill_session(session)
        cluster.add_worker("worker-instead")
    finally:
        code, *printed = end(process)
    assert (code, printed[0]) == (0, said), printed
    assert contents_of_spark_cluster(folder) == contents_of_spark_cluster(local)
    assert kept.items() <= list_times(folder).items()
    kept = list_times(folder)
    for path in folder.glob("*-000040.parquet"):
        path.unlink()
        del kept[path.name]
    assert cli.run([*given, str(folder), "--processes", "1"]) == 0
    assert capsys.readouterr().out == said
    assert contents_of_spark_cluster(folder) == contents_of_spark_cluster(local)
    assert kept.items() <= list_times(folder).items()
    assert len(kept) == 6


@pytest.mark.long
def test_a_campaign_on_the_cluster_is_the_local_one_byte_for_byte(cluster, tmp_path, capsys, monkeypatch):
    """Two files; what is printed is the same, too.  The executors run with the interpreter of an archive: there is no
    other Python under its name."""
    archive = tmp_path / "environment.tgz"
    monkeypatch.setattr(environment_archive, "LEVEL", 0)
    assert cli.run(["env-archive", str(archive)]) == 0
    assert f"spark.archives={archive}#environment" in capsys.readouterr().out
    given = ["campaign", "quiet", "--seeds", "25", "--set", "shared_subscriptions.load.messages=20", "--trace"]
    code, said, errors = end(begin(*given, tmp_path / "spark", *cluster.list_options(archive)))
    assert cli.run([*given, str(tmp_path / "local")]) == code == 0, errors
    assert said == capsys.readouterr().out
    assert len(contents_of_spark_cluster(tmp_path / "local")) == 4
    assert contents_of_spark_cluster(tmp_path / "spark") == contents_of_spark_cluster(tmp_path / "local")
    assert sorted(cluster.folder.glob("worker-*/app-*/*/environment/bin/python"))


PAGE = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
TYPES = {"BIGINT": "int64", "HUGEINT": "int64", "INTEGER": "int64", "DOUBLE": "double", "VARCHAR": "string"}


class Lines(list):
    """Lines of a query, with the types of its columns."""

    def __init__(self, columns):
        super().__init__()
        self.columns = columns


@pytest.fixture(scope="module")
def declared():
    """Table -> its columns with their types, as the queries declare them; no line is needed for that."""
    found = {}
    for protocol in registry.names():
        judges = Judges([registry.protocol(protocol)])
        results = Results(judges)
        with duckdb.connect() as connection:
            connection.register("result", pa.Table.from_batches([], results.schema))
            units = [(f"unit_{protocol}", pa.int64())]
            fields = [("run", pa.int64()), ("scenario", pa.string()), ("held", pa.bool_()), *units]
            connection.register("settings", pa.Table.from_pylist([], pa.schema(fields)))
            for macro in MACROS:
                connection.execute(f"CREATE MACRO {macro}")
            found[protocol] = tables_of(connection, judges)
    return found


def tables_of(connection, judges):
    by_query = {}

    def sql(query):
        done = connection.execute(query)
        by_query[query] = {name: TYPES.get(str(kind), str(kind).lower()) for name, kind, *_ in done.description or ()}
        return Lines({name: "bool" if kind == "boolean" else kind for name, kind in by_query[query].items()})

    tables = make_tables(sql, judges)
    return {name: lines.columns for name, lines in tables.items() if isinstance(lines, Lines)} | {
        name: next(columns for query, columns in by_query.items() if marker in query)
        for name, marker in (("latencies", "AS measured\n        GROUP BY scenario"), ("histograms", "log10"))
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the commands of the page were run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("traces"))
        for command in re.findall(r"^\$ gapless (.+)$", PAGE, re.M):
            assert run(command.split()) == 0
        yield Path.cwd()


def answers(folder, *engines):
    """What the listings for these engines came to, in lists of tuples.  The Java of Spark may have begun elsewhere."""
    names = {}
    for engine in engines:
        listing = re.search(rf"^```python {engine}\n(.*?)^```$", PAGE, re.M | re.S)[1]
        exec(listing.replace("out/", f"{folder}/out/"), names)
    return [[tuple(line) for line in names[one]] for one in ("transit", "lost", "never")]


@pytest.mark.long
def test_duckdb_and_pandas_give_the_same_answers(folder):
    found = answers(folder, "duckdb")
    assert all(found)
    assert answers(folder, "pandas") == found


@pytest.mark.long
def test_spark_gives_the_same_answers(folder):
    with Session():
        assert answers(folder, "duckdb", "spark") == answers(folder, "duckdb")


def test_columns_of_data_frames_say_their_units(folder):
    with Session() as session:
        rows = read_trace(session.spark, f"{folder}/out/sim")
        assert {one.name: one.metadata for one in rows.schema} == {
            one.name: {"comment": one.about} | ({"unit": one.unit} if one.unit else {}) for one in TRACE
        }
        runs = read_runs(session.spark, f"{folder}/out/sim")
        assert [tuple(line) for line in runs.select("run", "scenario", "seed").collect()] == [(0, "lossy", 1)]
        assert rows.where("run = 0").count() == json.loads(runs.first()["parameters"])["rows"]
        latencies = read_result(session.spark, f"{folder}/out/report", "latencies")
        assert latencies.schema["p50_ns"].metadata == {"unit": "ns"}
        assert latencies.schema["measure"].metadata == {}


def names(session):
    session._spark.createDataFrame([(7,)], "n int").createOrReplaceTempView("result")
    return session.sql("SELECT n FROM result")


@pytest.mark.long
def test_the_spark_of_an_application_goes_on_with_its_own_settings():
    from pyspark.sql import SparkSession

    ours = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        before = ours.conf.get("spark.sql.ansi.doubleQuotedIdentifiers")
        with Session() as session:
            assert names(session) == [{"n": 7}]
        assert ours.range(3).count() == 3
        assert ours.conf.get("spark.sql.ansi.doubleQuotedIdentifiers") == before
    finally:
        ours.stop()
