"""Traces of sequence windows: losses found against losses that happened (docs/sequence_windows.md)."""

from statemachines_reports.sequence_windows.report import REPORTS as REPORTS
