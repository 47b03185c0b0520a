# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch on a GPU by events, and captures its calls in CUDA graphs."""
import torch


def captured(step, warm_up):
    """Runs the step `warm_up` times, then returns a CUDA graph of one step."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def mean_ms(run, count=1):
    """Returns the mean milliseconds of `count` consecutive runs."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count
