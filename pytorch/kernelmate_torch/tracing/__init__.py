"""`kernelmate trace`: which kernels a program launched, and why the others were bypassed.

`recording` runs in the traced program and imports nothing of KernelMate; the other modules read its records.
"""
