"""gapless: formally specified protocol state machines for gap-free message delivery."""

__version__ = "0.1.0"
