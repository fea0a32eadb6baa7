"""Models for other programs, and models of theirs."""
