"""Schedules: assignment of a graph's elements to threads, one module each."""
