"""Times of kernels, measured or predicted."""
