"""Scripts behind the figures of docs/performance.md; `python -m benchmarks` prints those that need no GPU in one run."""
