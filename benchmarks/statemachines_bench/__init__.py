"""Benchmarks: every claim about speed is a row, measured in turns with its baseline; see README.md beside."""

from statemachines_bench.measure import measure as measure
from statemachines_bench.measure import measure_all as measure_all
from statemachines_bench.measure import ns_per_event as ns_per_event
from statemachines_bench.result import RowResult as RowResult
from statemachines_bench.result import render_results as render_results
from statemachines_bench.result import results_json as results_json
from statemachines_bench.result import summarize_result as summarize_result
from statemachines_bench.row import BenchRow as BenchRow
from statemachines_bench.row import RatioKind as RatioKind
from statemachines_bench.row import Size as Size
from statemachines_bench.row import TurnPair as TurnPair
from statemachines_bench.saved_results import SavedResults as SavedResults
from statemachines_bench.saved_results import find_commit as find_commit
from statemachines_bench.table import choose as choose
from statemachines_bench.table import list_json as list_json
from statemachines_bench.table import list_rows as list_rows
