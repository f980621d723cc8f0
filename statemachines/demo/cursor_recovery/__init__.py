"""The demo of cursor recovery: log lines go through shared memory, and SIGKILL hits who writes and who ships them."""

from statemachines.demo.protocol import DemoClaim, DemoProtocol, DemoStep, LineOptions, play_at
from statemachines.demo.simulated import make_simulation

DEMO = DemoProtocol(
    "Cursor recovery: a queue whose processes may die at any step",
    (
        DemoStep(
            "real",
            play_at("statemachines.demo.cursor_recovery.real:QueueRun"),
            "{shipped} of {acknowledged} lines shipped, {kills} SIGKILLs",
            (
                DemoClaim(
                    "what is acknowledged comes, or was in a killed shipper's hands (own files)",
                    "{arrived:,} of {acknowledged:,}; {blocks} blocks with {shippers} killed",
                    {"beyond": "acknowledged lines of {blocks} blocks never came; shippers killed: {shippers}"},
                ),
                DemoClaim(
                    "no line twice, none torn (own files)",
                    "{twice} twice, {foreign} torn",
                    {"twice": "{twice} lines came twice", "foreign": "{foreign} lines came that nobody wrote"},
                ),
            ),
            "Real queue",
        ),
        # Each run has ten thousand accesses, and any could be cut.
        make_simulation(
            "cursor_recovery/deaths_and_stops",
            "Simulated queues",
            "INTEG to STALE",
            "{delivered:,} blocks delivered",
            {"delivered": 50, "faults": 8},
            share=10,
        ),
    ),
    "{real[acknowledged]:,} lines through a queue in shared memory, whose writers and shippers are killed "
    "{real[kills]} times; the same machines in {simulated[runs]} simulated runs under deaths and stops; every step of "
    "both judged by Spark.",
    "{real[kills]} SIGKILLs to writers and readers",
    (("acknowledged", "messages"), ("gone", "lost"), ("lost", "died with their reader")),
    LineOptions,
)
