"""One Spark a process: sessions share it, the last one stops it, and nobody stops another's."""

from __future__ import annotations

import pytest

from statemachines_reports.session import Session


def active():
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def names(session):
    session._spark.createDataFrame([(7,)], "n int").createOrReplaceTempView("result")
    return session.sql("SELECT n FROM result")


def test_who_closes_first_leaves_the_others_their_spark():
    first = Session().__enter__()
    with Session() as second:
        assert names(first) == [{"n": 7}]
        assert not second._spark.catalog.tableExists("result"), "each has tables of its own"
        assert names(second) == [{"n": 7}]
    assert names(first) == [{"n": 7}]
    with Session() as third:
        first.__exit__()
        assert names(third) == [{"n": 7}]
    assert active() is None


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
