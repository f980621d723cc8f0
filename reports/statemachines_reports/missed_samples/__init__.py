"""Traces of missed samples: what was missing came later, or was reported, and nothing else (docs/missed_samples.md)."""

from statemachines_reports.missed_samples.report import REPORTS as REPORTS
