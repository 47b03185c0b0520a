#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one process of nets_vs_baselines.py: draws the images, exports a network, or runs the network in one system.

    net_systems.py draw FOLDER IMAGE BATCH CLASSES       # x.npy, labels.npy
    net_systems.py export FOLDER NET OPTIONS BATCHES     # y.npy in float64, BATCH.onnx, check of ours
    net_systems.py SYSTEM FOLDER NET OPTIONS BATCH ...   # checked, then timed

The last line of stdout is JSON. It is {"skipped": sentence} when the system is not installed.
"""
import argparse
import json
import pathlib

from processes import peak_bytes, repeated_ms

TOLERANCE = 1e-4  # relative L2 error against float64; f32 has about 1e-6, bf16 about 1e-2


def relative(got, want):
    import numpy as np
    want = np.asarray(want, dtype=np.float64)
    return float(np.linalg.norm(np.asarray(got, dtype=np.float64) - want)
                 / max(np.linalg.norm(want), 1e-30))


def draw(args):
    import numpy as np
    rng = np.random.default_rng(1)
    shape = [int(size) for size in args.image.split("x")]
    np.save(args.folder / "x.npy", rng.standard_normal((args.batch, *shape)).astype(np.float32))
    np.save(args.folder / "labels.npy", rng.integers(0, args.classes, args.batch).astype(np.int32))
    return {}


def torch_network(args):
    """Returns the network in PyTorch with Convscope's weights."""
    import torch_networks
    import weights
    network = torch_networks.MODELS[args.net](**json.loads(args.options))
    return weights.load(network, weights.read_safetensors(args.folder / "weights.safetensors"))


def export(args):
    import numpy as np
    import torch
    network = torch_network(args)
    x = torch.from_numpy(np.load(args.folder / "x.npy"))
    for batch in args.batches:
        torch.onnx.export(network, (x[:batch],), str(args.folder / f"{batch}.onnx"),
                          input_names=["x"], output_names=["y"], external_data=False, verbose=False)
    with torch.inference_mode():
        y = network.double()(x.double()).numpy()
    np.save(args.folder / "y.npy", y)
    return {"error": relative(np.load(args.folder / "ours.npy"), y), "tolerance": TOLERANCE}


def pytorch(args, x, channels_last=False, compiled=False):
    import torch
    torch.set_num_threads(args.threads)
    before = peak_bytes()
    network, images = torch_network(args), torch.from_numpy(x)
    if channels_last:
        network = network.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    if compiled:
        # Weights become constants, so that the compiler folds batch norm and packs the weights, as the other systems
        # do.
        torch._inductor.config.freezing = True
        network = torch.compile(network)

    mode = torch.no_grad if compiled else torch.inference_mode

    def run():
        with mode():
            return network(images).numpy()
    return run, torch.__version__, before


def onnx_runtime(args, x):
    import onnxruntime
    before = peak_bytes()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(args.folder / f"{args.batch}.onnx"), options,
                                           providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})[0], onnxruntime.__version__, before


def openvino(args, x):
    import openvino
    before = peak_bytes()
    model = openvino.Core().compile_model(
        str(args.folder / f"{args.batch}.onnx"), "CPU",
        {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": str(args.threads),
         "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "ENABLE_CPU_PINNING": "NO"})
    request = model.create_infer_request()
    run = lambda: request.infer({0: x}, share_inputs=True, share_outputs=True)[0]
    return run, openvino.__version__.split("-")[0], before


# For each name in the table: the function that prepares the system, and its arguments.
SYSTEMS = {
    "PyTorch NCHW": (pytorch, {}),
    "PyTorch channels-last": (pytorch, {"channels_last": True}),
    "torch.compile": (pytorch, {"compiled": True}),
    "ONNX Runtime": (onnx_runtime, {}),
    "OpenVINO": (openvino, {}),
}


def timed(args):
    """Checks the result, warms up, then counts every run until the time is over."""
    import numpy as np
    x = np.load(args.folder / "x.npy")[:args.batch]
    make, options = SYSTEMS[args.system]
    run, version, before = make(args, x, **options)
    error = relative(run(), np.load(args.folder / "y.npy")[:args.batch])
    out = {"version": version, "error": error, "tolerance": TOLERANCE}
    if not error <= TOLERANCE:
        return out
    return {**out, "ms": repeated_ms(run, args.seconds, args.clock), "process": peak_bytes(), "before": before}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("system", choices=["draw", "export", *SYSTEMS])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--net")
    parser.add_argument("--options", default="{}", help="of the network, JSON")
    parser.add_argument("--image")
    parser.add_argument("--classes", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--batches", type=int, nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    args = parser.parse_args()
    try:
        out = {"draw": draw, "export": export}.get(args.system, timed)(args)
    except ImportError as error:
        out = {"skipped": str(error)}
    print("\n" + json.dumps(out))


if __name__ == "__main__":
    main()
