"""`kernelmate kernelbench`: audits tasks in KernelBench's form, runs candidates of any author, and scores them.

Modules that import torch run in the confined process alone: `server` is its entry. The command's own process imports
`command`, `records`, `tasks`, `results`, `shown` and `running`, none of which imports torch or a task's file.
"""
