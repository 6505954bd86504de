"""Suggesters of candidates."""
