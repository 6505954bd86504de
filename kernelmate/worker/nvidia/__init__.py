"""NVIDIA's command-line tools (compute-sanitizer, Nsight Compute), run on request around launches of the judged code."""
