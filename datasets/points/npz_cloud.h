// SPDX-License-Identifier: Apache-2.0
// npz_cloud.h: a cloud of points in NumPy's archive of arrays.
//
//   coordinates  [n,2] (x,y) or [n,3] (x,y,z), floating or i4, i1, u1
//   features     [n] or [n,C]; optional
//   labels       [n], i4, i1 or u1; optional
//
//   np.savez("a.npz", coordinates=xyz, features=intensity)
#pragma once

#include <string>

#include "datasets/points/cloud.h"
#include "framework/io/bytes.h"

namespace convscope {

CONVSCOPE_API Cloud read_npz_cloud(const std::string& path);
// Parses the bytes of an npz file. Throws kData with `name`, the array and its shape. The features
// are called f0, f1, ...
CONVSCOPE_API Cloud parse_npz_cloud(Bytes file, const std::string& name);

}  // namespace convscope
