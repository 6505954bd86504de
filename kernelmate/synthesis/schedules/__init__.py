"""Schedules: who computes which element of a graph, one file each."""
