"""Processes that run a script as ranks, and what is seen of all of them while they run."""
