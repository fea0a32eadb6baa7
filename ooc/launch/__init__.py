"""Run a command on several machines, started over ssh."""
