"""The demo of sequence windows: lines go over multicast, some are lost on the way, and receivers say how many."""

from statemachines.demo.protocol import DemoClaim, DemoProtocol, DemoStep, LineOptions, play_at
from statemachines.demo.simulated import make_simulation

DEMO = DemoProtocol(
    "Sequence windows: every loss counted",
    (
        DemoStep(
            "real",
            play_at("statemachines.demo.sequence_windows.real:WindowRun"),
            "{sent} messages, {dropped} losses in {receivers} receivers",
            (
                DemoClaim(
                    "what is told is what the forwarder dropped (own files)",
                    "{told:,} of {dropped:,}",
                    {
                        "misjudged": "{receiver} tells another number of {misjudged} than was dropped",
                        "unknown": "{receiver}: {unknown} losses of unknown size",
                    },
                ),
                DemoClaim(
                    "everything else comes, once (own files)",
                    "{came:,} came, {repeated} sent twice",
                    {
                        "missing": "{receiver}: {missing} messages did not come",
                        "twice": "{receiver}: {twice} messages came twice",
                        "foreign": "{receiver}: {foreign} messages nobody sent",
                    },
                ),
                DemoClaim(
                    "advisories and show-loss say the same (own files)",
                    "{advised:,} advised",
                    {
                        "unadvised": "{receiver}: advised of {advised}, told {told}",
                        "unshown": "{receiver}: show-loss says {shown}, told {told}",
                    },
                ),
            ),
            "Real multicast",
        ),
        make_simulation(
            "sequence_windows/crowded",
            "Simulated multicast",
            "MONO to NOTIFY",
            "{lost:,} losses",
            {"delivered": 1_000, "lost": 1},
            share=20,
        ),
    ),
    "{real[sent]:,} lines over UDP multicast; what receivers told is compared with what a forwarder dropped. The same "
    "machines in {simulated[runs]} simulated runs with {simulated[lost]:,} losses. Spark judges what was told against "
    "what the networks lost.",
    "a network that dropped {real[dropped]:,} messages, and said nothing",
    (("sent", "messages"), ("untold", "losses not told"), ("dropped", "losses told exactly")),
    LineOptions,
)
