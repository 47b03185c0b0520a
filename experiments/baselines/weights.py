# SPDX-License-Identifier: Apache-2.0
"""Reads Convscope's weights and loads them into networks of PyTorch."""
import json
import struct
import sys

import numpy as np
import torch

AVERAGE = "optimizer/average."


def read_safetensors(path):
    """Returns {name: array} of parameters and buffers. Averages of the weights (optim.ema) replace the weights if the
    run is evaluated with them. The rest of the optimiser's state (optimizer/...) is left out."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    entries = json.loads(raw[8:8 + length])
    config = entries.pop("__metadata__", {}).get("config", "")
    averages = {} if "\n    evaluate: false" in config else {
        name.removeprefix(AVERAGE): entry for name, entry in entries.items() if name.startswith(AVERAGE)}
    out = {}
    for name, entry in entries.items():
        if name.startswith("optimizer/"):
            continue
        entry = averages.get(name, entry)
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32", entry
        out[name] = np.frombuffer(raw[8 + length + begin:8 + length + end],
                                  dtype=np.float32).reshape(entry["shape"])
    return out


def load(network, weights):
    """Loads arrays into a network in evaluation mode; both must have the same names."""
    state = {name: torch.from_numpy(value.copy()) for name, value in weights.items()}
    missing, unexpected = network.load_state_dict(state, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        sys.exit(f"names differ: only in PyTorch {missing}, only in Convscope {unexpected}")
    return network.eval()
