"""Systems for tests (`toy_system`, `lock_toy`, ...) are importable from here."""
