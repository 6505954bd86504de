"""Two spawned processes, each with the operator."""

import multiprocessing

import torch
from operators import softmax


def work(rows):
    torch.set_num_threads(1)
    for _ in range(2):
        softmax(torch.randn(rows, 8))


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, args=(rows,)) for rows in (4, 8)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    work(2)
