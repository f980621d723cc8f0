"""One Spark a process: sessions share it, the last one stops it, and nobody stops another's."""

from __future__ import annotations

import pytest

from statemachines_reports.session import Session


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
