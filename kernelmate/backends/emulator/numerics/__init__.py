"""Arithmetic on arrays, bit-exact by IEEE 754 and the PTX ISA."""
