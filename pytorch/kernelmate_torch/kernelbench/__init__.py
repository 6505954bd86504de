"""`kernelmate kernelbench`: audits tasks in KernelBench's form, runs candidates of any author, and scores them.

Modules that import torch run only in the confined process, whose entry is `server`. The command's own process imports
`command`, `records`, `tasks`, `results`, `rendering` and `running`, none of which imports torch or a task's file.
"""
