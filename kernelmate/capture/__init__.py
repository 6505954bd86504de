"""Records launches of a kernel while a program runs, and makes contracts from them."""
