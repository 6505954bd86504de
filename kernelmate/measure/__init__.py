"""How long a kernel takes, or is predicted to take."""
