"""A small model served on this machine by llama.cpp, or by any server that speaks OpenAI's chat protocol."""
