"""One way of being falsely right or falsely fast per file."""
