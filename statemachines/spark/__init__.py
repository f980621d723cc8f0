"""Spark: a session on any master, what its executors are sent, and the tasks that they run."""
