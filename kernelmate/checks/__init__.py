"""Correctness checks and guards against falsely correct or falsely fast kernels."""
