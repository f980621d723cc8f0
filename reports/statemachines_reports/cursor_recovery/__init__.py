"""Cursor recovery in reports: what is checked over traces of simulated and of real queues, and shown."""

from statemachines_reports.cursor_recovery.report import REPORTS as REPORTS
