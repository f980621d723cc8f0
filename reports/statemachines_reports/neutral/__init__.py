"""Neutral: what is judged in a trace of any protocol."""
