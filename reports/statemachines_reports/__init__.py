"""Reports: PySpark judges traces, and a page shows what happened."""
