"""Log analysis: the files of a foreign log are judged, in this process or in tasks of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from statemachines_reports.foreign_log.log_file import check_columns, estimate_rows
from statemachines_reports.foreign_log.log_judge import LogJudge, check_files
from statemachines_reports.foreign_log.log_mapping import LogMapping
from statemachines_reports.foreign_log.log_verdict import LogVerdict

ROWS_HERE: Final = 50_000_000
"""More rows than that are judged by Spark."""


def judge_files(files: Sequence[Path], mapping: LogMapping, master: str = "") -> LogVerdict:
    """Judge the files of a foreign log: in this process, or by Spark above `ROWS_HERE` rows or with a `master`.

    Raises `ConfigurationError` for what is no log of this mapping: one line with the file, the line and the mend.
    """
    check_files(files)
    judge = LogJudge(files, mapping)
    check_columns(judge.files, judge.formats, judge.mapper.columns)
    rows = sum(estimate_rows(path, kind) for path, kind in zip(files, judge.formats, strict=True))
    if not master and rows <= ROWS_HERE:
        return judge.judge_here()
    from statemachines.spark.spark_settings import read_settings
    from statemachines_reports.foreign_log.log_spark import judge_on_spark

    return judge_on_spark(judge, read_settings(master, ()))
