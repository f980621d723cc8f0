"""What a task refuses comes back in one line; what a user sets of Spark is kept; the engine follows from the rows."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException

from statemachines import registry
from statemachines.cli import Exit, run
from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.spark import spark_task
from statemachines.spark.code_archive import write_code
from statemachines.spark.spark_link import ConnectLink, set_value
from statemachines.spark.spark_session import SharedSpark
from statemachines.spark.spark_settings import NO_SETTINGS, SparkSettings, is_local, read_settings
from statemachines_reports.pipeline import LOCAL, SPARK, SPARK_ROWS, choose_engine
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
