"""The thread pool of a regression."""
