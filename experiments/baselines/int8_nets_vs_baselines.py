#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares inference of a quantised network: Convscope on integers, OpenVINO and ONNX Runtime.

OpenVINO and ONNX Runtime run the ONNX file (QuantizeLinear, DequantizeLinear) that `convscope export --onnx`
writes of the same network. Convscope and OpenVINO are timed in f32, too.

    python3 experiments/baselines/int8_nets_vs_baselines.py --program build/release/bin/convscope
    ... --quick                  one short turn of each
    ... --threads 1 --clock cpu  on a busy machine: CPU time instead of wall time

The network is trained for two steps on random pixels, so that its batch norms have statistics and its quantisers have
step sizes (8 bits). Weights and step sizes do not depend on the image size, so those from 32x32 images are used for
224x224 images.

First the script checks results. It compares the logits of the same images, from `convscope op net` and from every
system, with those of ONNX Runtime without any optimisation. All systems quantise with the same scales. But another
summation order may move a number across a rounding boundary, so that its quantised value differs by one, and later
layers propagate the difference. So a system may differ by 2 percent of the logits' norm; a different network differs by
far more. A system beyond the tolerance is not timed. Then the script times all systems in turn, `--repeats` times,
every turn in a new process. The table shows the median over the turns and the shortest run. A ratio is a system's time
/ the time of Convscope's int8.

Exit code 1 when a result is wrong, 77 when no baseline is installed.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import net_table
from images import write_cifar
from nets_vs_baselines import called
from processes import add_turn_options, bench, environment, on_cores, parsed_turns, peak_bytes, repeated_ms

TOLERANCE = 0.02  # of the norm of the logits
IMAGE = 224
BATCHES = (1, 8)
OURS_F32 = "Convscope f32"
BASELINES = {"OpenVINO int8": ("openvino", "int8"), "ONNX Runtime int8": ("onnxruntime", "int8"),
         "OpenVINO f32": ("openvino", "f32")}


def prepare(args, folder):
    """Trains the network in int8 and in f32. Writes the runs, their ONNX files, images and Convscope's logits for
    them."""
    write_cifar(folder / "data/cifar10", 80, 16)
    for form, more in (("int8", ["quant={w_bits: 8, a_bits: 8, execute: int8}"]), ("f32", [])):
        called([args.program, "run", f"cifar10_{args.net}", "data.root=data", "model.stem=imagenet",
                "train.epochs=1", "data.batch_size=16", "data.limit=32", "optim.lr=0.001", "expect=null",
                "threads=1", f"name={form}", "-q", *more], f"run of {args.net}", cwd=folder)
        called([args.program, "export", f"runs/{form}", "--onnx", f"{form}.onnx"], "export", cwd=folder)
    called([args.python, __file__, "draw", folder], "images")
    for form in ("int8", "f32"):
        called([args.program, "op", "net", f"runs/{form}/latest/config.yaml", "--x", "x.npy", "--weights",
                f"runs/{form}/latest/ckpt/best.safetensors", "--out-y", f"ours_{form}.npy"], "op net",
               cwd=folder)


def draw(folder):
    import numpy as np
    x = np.random.default_rng(1).standard_normal((max(BATCHES), 3, IMAGE, IMAGE))
    np.save(folder / "x.npy", x.astype(np.float32))


def session_of(path, threads, optimised=True):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def with_any_image(path):
    """Removes the image size, which is that of the training images, from the file. No operator depends on it."""
    import onnx
    model = onnx.load(str(path))
    for place, dim in enumerate(model.graph.input[0].type.tensor_type.shape.dim):
        if place > 1:
            dim.dim_param = f"side{place}"
    del model.graph.value_info[:]
    out = path.with_name(f"any_{path.name}")
    onnx.save(model, str(out))
    return out


def made(system, path, x, threads):
    """Returns a call that computes logits, and the system's version."""
    if system == "onnxruntime":
        import onnxruntime
        session = session_of(with_any_image(path), threads)
        return lambda: session.run(None, {"images": x})[0], onnxruntime.__version__
    import openvino
    core = openvino.Core()
    model = core.read_model(str(path))
    model.reshape(list(x.shape))
    compiled = core.compile_model(model, "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": str(threads), "NUM_STREAMS": "1",
        "PERFORMANCE_HINT": "LATENCY", "ENABLE_CPU_PINNING": "NO"})
    request = compiled.create_infer_request()
    return (lambda: request.infer({0: x}, share_inputs=True, share_outputs=True)[0],
            openvino.__version__.split("-")[0])


def error_of(got, want):
    import numpy as np
    return float(np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30))


def child(folder, system, form, batch, threads, seconds, clock):
    import numpy as np
    x = np.load(folder / "x.npy")
    path = folder / f"{form}.onnx"
    reference = session_of(with_any_image(path), threads, optimised=False)
    want = reference.run(None, {"images": x[:batch]})[0]
    if system == "ours":
        return {"error": error_of(np.load(folder / f"ours_{form}.npy")[:batch], want)}
    run, version = made(system, path, np.ascontiguousarray(x[:batch]), threads)
    out = {"version": version, "error": error_of(run(), want)}
    if not out["error"] <= TOLERANCE:
        return out
    return {**out, "ms": repeated_ms(run, seconds, clock), "process": peak_bytes()}


def baseline_turn(args, folder, system, form, batch, threads):
    text = called([args.python, __file__, "child", folder, system, form, batch, threads, args.seconds,
                   args.clock], system, env=environment(threads), preexec_fn=on_cores(threads, args.pin))
    return json.loads(text.splitlines()[-1])


def our_turn(args, folder, form, batch, threads):
    row, = bench([args.program, "bench", "net", f"runs/{form}", "--batch", batch, "--mode", "inference", "--image",
                  f"3x{IMAGE}x{IMAGE}", "--threads", threads, "--min-time", args.seconds, "--rounds", 3, "--clock",
                  args.clock, "-q"], cwd=folder, env=environment(threads),
                 preexec_fn=on_cores(threads, args.pin))["rows"]
    return {"ms": [row["median_ms"]], "min": row["min_ms"], "process": row["process_peak_bytes"]}


def compare(args, folder):
    prepare(args, folder)
    rows, wrong, versions = [], set(), {}
    for threads in args.threads:
        for batch in BATCHES:
            for form in ("int8", "f32"):
                error = baseline_turn(args, folder, "ours", form, batch, threads)["error"]
                print(f"{args.net} {form} N={batch}: Convscope differs by {error:.1e}", file=sys.stderr)
                if not error <= TOLERANCE:
                    wrong.add((f"Convscope {form}", batch))
            turns = {net_table.OURS: [], OURS_F32: []}
            for _ in range(args.repeats):
                turns[net_table.OURS].append(our_turn(args, folder, "int8", batch, threads))
                turns[OURS_F32].append(our_turn(args, folder, "f32", batch, threads))
                for name, (system, form) in BASELINES.items():
                    if (name, batch) in wrong:
                        continue
                    one = baseline_turn(args, folder, system, form, batch, threads)
                    versions[system] = one["version"]
                    if "ms" in one:
                        turns.setdefault(name, []).append(one)
                        continue
                    wrong.add((name, batch))
                    print(f"WRONG RESULT, not timed: {name} N={batch}: {one['error']:.1e}", file=sys.stderr)
            row = net_table.row_of(f"{args.net} int8 N={batch}", threads, turns)
            if not rows:
                print(f"{args.repeats} turns of {args.seconds} s, {args.clock} time; {net_table.OURS}: int8\n"
                      f"{net_table.head()}")
            rows.append(row)
            for cells in net_table.cells_of(row):
                print(net_table.markdown(cells), flush=True)
    for system, version in versions.items():
        print(f"{system}: {version}; cores of this machine: {os.cpu_count()}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")
    return 1 if wrong else 0


def main():
    if sys.argv[1:2] == ["draw"]:
        return draw(pathlib.Path(sys.argv[2]))
    if sys.argv[1:2] == ["child"]:
        folder, system, form, batch, threads, seconds, clock = sys.argv[2:]
        print(json.dumps(child(pathlib.Path(folder), system, form, int(batch), int(threads),
                               float(seconds), clock)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_turn_options(parser, 2.0, 0.5, "the baselines")
    parser.add_argument("--net", default="resnet18", choices=["resnet18", "mobilenet_v1", "mobilenet_v2"])
    args = parsed_turns(parser)
    args.program = pathlib.Path(args.program).resolve()
    installed = subprocess.run([args.python, "-c", "import openvino, onnxruntime, onnx, numpy"],
                               capture_output=True)
    if installed.returncode != 0:
        print("skipped: OpenVINO, ONNX Runtime, onnx or numpy is not installed; experiments/baselines/setup.py "
              "installs them", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        return compare(args, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
