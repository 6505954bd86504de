"""What the performance figures in the README come from: `python -m benchmarks` prints them all in one run."""
