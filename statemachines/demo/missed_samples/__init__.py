"""The demo of missed samples: lines get lost on a link of real zenoh, and every one of them comes after all."""

from statemachines.demo.protocol import DemoClaim, DemoProtocol, DemoStep, Figures, LineOptions, play_at
from statemachines.demo.simulated import make_simulation

COMPARISON = (
    "{recovered} asked for, {undelivered} undelivered and {missed} of them reported; zenoh's own subscriber left "
    "{theirs[undelivered]} undelivered, and reported {theirs[missed]}"
)
"""Ours beside zenoh's own subscriber, whose figures decide nothing."""


def has_shown_recovery(figures: Figures) -> bool:
    """The run shows what it is for."""
    return figures["dropped"] > 0 and all(one["recovered"] > 0 for one in figures["accounts"])


DEMO = DemoProtocol(
    "Missed samples: what was lost comes after all",
    (
        DemoStep(
            "real",
            play_at("statemachines.demo.missed_samples.real:SampleRun"),
            f"{{dropped}} batches lost; {COMPARISON}",
            (
                DemoClaim(
                    "every sample comes or is reported (own files)",
                    f"{{delivered:,}} delivered, {COMPARISON}",
                    {
                        "silent": "{subscriber}: {silent} samples neither came nor are reported",
                        "foreign": "{subscriber}: {foreign} samples are not what was published",
                    },
                ),
                DemoClaim(
                    "once and in order (own files)",
                    "{delivered:,} delivered",
                    {
                        "twice": "{subscriber}: {twice} samples came twice",
                        "late": "{subscriber}: {late} samples came after a later one",
                    },
                ),
                DemoClaim(
                    "the link lost samples, and they were asked for", "{dropped} batches", holds=has_shown_recovery
                ),
            ),
            "Real zenoh",
        ),
        make_simulation(
            "missed_samples/lost_meanwhile",
            "Simulated queries",
            "NOGAP to REPLIES",
            "{queries:,} queries",
            {"delivered": 1_000, "queries": 1},
            share=20,
        ),
    ),
    "Lines over real zenoh, through a link that dropped {real[dropped]:,} batches of a TCP stream, as a router does "
    "that dies; a publisher and the router were killed. What subscribers got is compared with what was published. The "
    "same machines in {simulated[runs]} simulated runs. Spark judges what was asked for and told.",
    "a link that lost {real[dropped]:,} batches; SIGKILL to a publisher and the router",
    (("delivered", "samples delivered"), ("silent", "lost"), ("missed", "reported as lost")),
    LineOptions,
)
