// SPDX-License-Identifier: Apache-2.0
// ply.h: the vertices of a PLY file as a cloud of points.
//
// Reads ascii and binary_little_endian, version 1.0. The element `vertex` has x and y; without z
// the cloud is a plane. All other properties are features, in their order. Skips other elements,
// such as faces. Refuses binary_big_endian, a list among the properties of a vertex, and truncated
// files.
// Format: G. Turk, The PLY Polygon File Format, 1994, as described at
// https://paulbourke.net/dataformats/ply/
#pragma once

#include <string>

#include "datasets/points/cloud.h"
#include "framework/io/bytes.h"

namespace convscope {

CONVSCOPE_API Cloud read_ply(const std::string& path);
// Parses a file; throws kData with `name`. Checks sizes against the bytes before any allocation.
CONVSCOPE_API Cloud parse_ply(Bytes file, const std::string& name);

}  // namespace convscope
