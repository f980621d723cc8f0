"""The commands of `gapless`, a module each; what a command needs is imported when it runs."""
