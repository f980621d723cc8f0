"""Traces in ITF (Quint, Apalache): runs of the explorer written there, and traces of others followed or judged."""
