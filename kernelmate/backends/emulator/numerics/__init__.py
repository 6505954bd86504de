"""Exact arithmetic on arrays: what IEEE 754 and the PTX ISA say, bit for bit."""
