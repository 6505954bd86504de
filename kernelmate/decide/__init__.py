"""Objectives, metrics, acceptance and ranking of candidates."""
