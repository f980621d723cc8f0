"""Mistakes to be put into shipped nodes: (module, piece of its text, what takes its place)."""

SHARED = "statemachines.shared_subscriptions."

LEADER = {
    "a stream is handed over before the lease of its owner has ended": (
        f"{SHARED}member", 'SetTimer("hand_over", end,', 'SetTimer("hand_over", now_ns,',
    ),
    "progress goes back": (
        f"{SHARED}assignment",
        "    return replace(record, progress=max(record.progress, event.progress)), ()",
        "    return replace(record, progress=event.progress), ()",
    ),
    "only pings show that a member lives": (
        f"{SHARED}member", "    return record, (set_silence_timer(record, now_ns),)", "    return record, ()",
    ),
    "a registration that is over is served": (
        f"{SHARED}membership",
        "    return member is not None and member.link.registration == event.registration and event.epoch",
        "    return member is not None and event.epoch",
    ),
    "the end of an earlier grant frees the stream": (
        f"{SHARED}membership", "assignment is not None and assignment.grant == grant and", "assignment is not None and",
    ),
    "shares are unequal": (f"{SHARED}plan", "(number < live % members)", "(number <= live % members)"),
    "the reports of a disconnect are lost": (
        f"{SHARED}membership",
        "    for report in event.reports:\n        if grants",
        "    for report in ():\n        if grants",
    ),
    "a finished stream is not taken back": (
        f"{SHARED}assignment", "return event.finished or event.progress", "return event.progress",
    ),
    "a registration is given out twice": (
        f"{SHARED}membership", "number = record.registration + 1", "number = record.registration or 1",
    ),
}  # fmt: skip

LEADER_COMMAND = (
    "node", "leader", "--store", "{database}", "--config", "{config}", "--listen", "{address}",
    "--state", "{directory}",
)  # fmt: skip
"""The arguments of a leader host that the kit starts."""
