"""The same command on several machines, started over ssh."""
