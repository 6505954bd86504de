"""Guards: each module detects one way of being falsely correct or falsely fast."""
