"""Persistent sessions in an application, over a real database (docs/sessions.md)."""
