"""NVIDIA's command-line tools, put around launches of the very code that was judged, on request."""
