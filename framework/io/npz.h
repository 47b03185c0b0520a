// SPDX-License-Identifier: Apache-2.0
// npz.h: NumPy's archive of named arrays: a zip file of .npy files.
//
// Read: stored and deflated entries, what np.savez and np.savez_compressed write; sizes, sums and
// positions are checked. Refused: zip64 beyond 4 GiB, encryption, entries that overlap.
// Written: stored, atomically, with a fixed date, so the same content gives the same bytes.
// Format: PKWARE APPNOTE 6.3, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <string>

#include "framework/io/bytes.h"

namespace convscope {

// Names come without ".npy".
CONVSCOPE_API NamedTensors read_npz(const std::string& path);
CONVSCOPE_API NamedTensors parse_npz(Bytes file, const std::string& name);
CONVSCOPE_API void write_npz(const std::string& path, const NamedTensors& tensors);

}  // namespace convscope
