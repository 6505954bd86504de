"""Notebook magics and panels. They come with a later version; nothing is shown yet."""
