"""Verified pairs that a model can be taught with: generated, judged, and kept as JSON Lines."""
