"""Foreign logs: what other programs wrote, read through a mapping, and judged at the level that the mapping names."""

from statemachines_reports.foreign_log.log_analysis import judge_files as judge_files
from statemachines_reports.foreign_log.log_mapping import LogMapping as LogMapping
from statemachines_reports.foreign_log.log_mapping import read_mapping as read_mapping
from statemachines_reports.foreign_log.log_verdict import LogVerdict as LogVerdict
