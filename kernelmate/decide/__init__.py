"""Objectives, metrics, acceptance and ranking: what a prompt asks for, and which versions meet it."""
