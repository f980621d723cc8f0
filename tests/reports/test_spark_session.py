"""One Spark a process: sessions share it, the last one stops it, and nobody stops another's.

In a process of its own: that of the tests may have a Spark that other tests keep."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

IN_TURN = """
import json
from pyspark import SparkContext
from pyspark.sql import SparkSession
from statemachines_reports.session import Session

def active():
    return SparkContext._active_spark_context is not None

def is_used(session):
    session._spark.createDataFrame([(7,)], "n int").createOrReplaceTempView("result")
    return session.sql("SELECT n FROM result") == [{"n": 7}]

told = {"before": active()}
first = Session().__enter__()
with Session() as second:
    told["second beside first"] = is_used(second)
    told["tables of its own"] = not first._spark.catalog.tableExists("result")
told["first after second"] = is_used(first)
with Session() as third:
    first.__exit__()
    told["third after first"] = is_used(third)
told["after all"] = active()

ours = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
before = ours.conf.get("spark.sql.ansi.doubleQuotedIdentifiers")
with Session() as session:
    told["beside an application's"] = is_used(session)
told["the application's goes on"] = active() and ours.range(3).count() == 3
told["with its settings"] = ours.conf.get("spark.sql.ansi.doubleQuotedIdentifiers") == before
ours.stop()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told():
    done = subprocess.run([sys.executable, "-c", IN_TURN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_who_closes_first_leaves_the_others_their_spark(told):
    assert told["second beside first"]
    assert told["first after second"]
    assert told["third after first"]


def test_the_last_one_stops_it(told):
    assert (told["before"], told["after all"]) == (False, False)


def test_two_that_are_open_have_tables_of_their_own(told):
    assert told["tables of its own"]


def test_the_spark_of_an_application_goes_on_with_its_own_settings(told):
    assert told["beside an application's"]
    assert told["the application's goes on"]
    assert told["with its settings"]
