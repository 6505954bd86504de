"""Training of models that write kernels, run by `kernelmate upskill`: corpus, fine-tuning, export and exam.

Modules named `torch_*` import torch when they are loaded, and are imported only where torch is used.
"""
