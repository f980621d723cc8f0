"""Draw the picture of README: one simulated run in which a consumer is killed, by the drawing of the reports.

python tools/documentation/draw_run.py docs/kill.svg
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from statemachines.commands.simulation import simulate
from statemachines_reports import draw_sequence
from statemachines_reports.shared_subscriptions.recovery import STORY

SEED = 7
SCENARIO = """
name = "one-crash"
protocol = "shared_subscriptions"
faults = { crash = [1, 1] }
phases = { safety_s = 6.0, liveness_s = 30.0 }

[shared_subscriptions]
load = { topics = 2, messages = 200, batch = 5, work_ms = [40, 80] }
members = { consumers = 2 }
"""
STYLE = """
svg { background: #fff; } text { font: 11px system-ui, sans-serif; text-anchor: middle; fill: #1b2430; }
.life { stroke: #d7dee7; } rect.head { fill: #f4f7fa; stroke: #5c6b7d; } .arrow path { stroke: #2166ac; fill: none; }
.lost path { stroke: #b2182b; stroke-dasharray: 4 3; fill: none; } .lost text, .fault text { fill: #b2182b; }
.told circle, .told text { fill: #1a7f4b; } .fault circle { fill: #b2182b; } .fault text { font-weight: 700; }
.note circle, .note text { fill: #5c6b7d; }
"""
TIP = (
    '<marker id="{}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" '
)
TIP += 'orient="auto"><path fill="{}" d="M0,0 L8,4 L0,8 z"/></marker>'


def draw_kill(folder: Path) -> str:
    """The SVG, complete with its style; the trace of the run goes into the folder."""
    scenario = folder / "one-crash.toml"
    scenario.write_text(SCENARIO)
    simulate(str(scenario), seed=SEED, trace=folder / "trace")
    (trace,) = (folder / "trace").glob("trace-*.parquet")
    picture = draw_sequence.draw(trace, 0, STORY)
    assert picture is not None
    head, rest = str(picture.svg).split(">", 1)
    width, height = re.findall(r'viewBox="0 0 (\d+) (\d+)"', head)[0]
    tips = TIP.format("tip", "#2166ac") + TIP.format("tip-lost", "#b2182b")
    size = f'width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg"'
    return f"{head} {size}><style>{STYLE}</style><defs>{tips}</defs>{rest}\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        Path(sys.argv[1]).write_text(draw_kill(Path(place)), encoding="utf-8")
