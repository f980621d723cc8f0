"""Reports: PySpark judges traces, and a page shows what happened.

`read_trace(spark, path)`, `read_runs(spark, path)` and `read_result(spark, path, table)` give tables as DataFrames.
"""

from statemachines_reports.trace_frame import read_result, read_runs, read_trace

__all__ = ["read_result", "read_runs", "read_trace"]
