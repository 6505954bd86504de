"""`kernelmate trace`: which kernels a program launched, and what sent the others elsewhere.

`recording` runs in the traced program and imports nothing of KernelMate; the other modules read its records.
"""
