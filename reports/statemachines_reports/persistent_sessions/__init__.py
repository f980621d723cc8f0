"""Persistent sessions in reports: what is checked over traces of simulated and of real nodes, and shown."""

from statemachines_reports.persistent_sessions.report import REPORTS as REPORTS
