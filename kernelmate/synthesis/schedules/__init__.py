"""Schedules, one per module: each assigns the elements of a graph to threads."""
