// SPDX-License-Identifier: Apache-2.0
// npz.h: NumPy's archive of named arrays: a zip file of .npy files.
//
// Reads stored and deflated entries, as np.savez and np.savez_compressed write them. Checks sizes,
// checksums and positions. Refuses zip64 beyond 4 GiB, encryption, and overlapping entries. Writes
// stored entries, atomically and with a fixed date, so the same content gives the same bytes.
#pragma once

#include <string>

#include "framework/io/bytes.h"

namespace convscope {

// Reads all arrays; the names come without ".npy".
CONVSCOPE_API NamedTensors read_npz(const std::string& path);
CONVSCOPE_API NamedTensors parse_npz(Bytes file, const std::string& name);
CONVSCOPE_API void write_npz(const std::string& path, const NamedTensors& tensors);

}  // namespace convscope
