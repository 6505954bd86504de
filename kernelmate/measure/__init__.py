"""Measured and predicted times of kernels."""
