"""Models that write kernels: corpus of judged pairs, training, export and exam; `kernelmate upskill` is its command.

Modules named `torch_*` import torch when they are loaded, and are loaded only where it is used.
"""
