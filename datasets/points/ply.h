// SPDX-License-Identifier: Apache-2.0
// ply.h: the vertices of a PLY file as a cloud of points.
//
// Read: ascii and binary_little_endian, version 1.0. The element `vertex` has x and y; without z
// the cloud is a plane. All other properties are features, in their order. Other elements, such as
// faces, are passed over. Refused: binary_big_endian, a list among the properties of a
// vertex, a file that ends too early.
// Format: G. Turk, The PLY Polygon File Format, 1994, as described at
// https://paulbourke.net/dataformats/ply/
#pragma once

#include <string>

#include "datasets/points/cloud.h"
#include "framework/io/bytes.h"

namespace convscope {

CONVSCOPE_API Cloud read_ply(const std::string& path);
// `name` stands in the errors, which are of kind kData. Sizes are checked against the bytes before
// anything is allocated.
CONVSCOPE_API Cloud parse_ply(Bytes file, const std::string& name);

}  // namespace convscope
