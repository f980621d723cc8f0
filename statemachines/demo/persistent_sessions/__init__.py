"""The demo of persistent sessions: a client loses its node to SIGKILL while lines wait for it, and none of them."""

from statemachines.demo.protocol import DemoClaim, DemoProtocol, DemoStep, LineOptions, play_at

DEMO = DemoProtocol(
    "Persistent sessions: a client that loses its node, and no message",
    (
        DemoStep(
            "real",
            play_at("statemachines.demo.persistent_sessions.real:SessionRun"),
            "{delivered} of {stored} stored lines came, {again} of them again and marked; the publisher waited "
            "{slowest_s:.2f} s at most",
            (
                DemoClaim(
                    "what is stored comes (own files)",
                    "{delivered:,} of {stored:,}; {waiting} waited when the node was killed",
                    {"missing": "{missing} lines were stored and never came"},
                    lambda figures: figures["waiting"] > 0 and figures["delivered"] > 0,
                ),
                DemoClaim(
                    "in order, and again only as a repetition (own files)",
                    "{again} repetitions",
                    {
                        "twice": "{twice} lines came twice and were not marked as repetitions",
                        "late": "{late} lines came behind a later one",
                        "foreign": "{foreign} lines are not what was published",
                    },
                ),
                DemoClaim(
                    "one connection has the session (own files)",
                    "{taken} taken over",
                    holds=lambda figures: figures["taken"] == 1,
                ),
            ),
            "Real nodes",
        ),
        DemoStep(
            "brokers",
            play_at("statemachines.demo.persistent_sessions.broker_kill:BrokerKills"),
            "{kept:,} messages of ours kept",
            (
                DemoClaim(
                    "what is acknowledged survives SIGKILL of the node",
                    "{kept:,} of {published:,} at the other node, {rate:,.0f} publishes/s",
                    holds=lambda figures: figures["kept"] == figures["published"] > 0 and figures["is_ordered"],
                ),
            ),
        ),
    ),
    "{real[stored]:,} lines for a client whose node was killed while {real[waiting]} stored lines had not come; it "
    "went on at another node, with the same session, and then took it over to a third connection. What came is "
    "compared with what was stored; Spark judges what writers and owners did. Then brokers are killed while messages "
    "wait for mosquitto_sub: {brokers[text]}.",
    "SIGKILL to the client's node, with {real[waiting]:,} messages on their way",
    (("stored", "messages"), ("missing", "lost"), ("again", "sent again, marked")),
    LineOptions,
)
