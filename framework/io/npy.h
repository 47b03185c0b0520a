// SPDX-License-Identifier: Apache-2.0
// npy.h: NumPy's file format for one array.
//
// Read: versions 1.0 and 2.0, little-endian f4 f8 f2 i4 i1 u1, C order. Refused with a sentence
// that says what to do in NumPy: Fortran order, other dtypes, cut or too long files. bf16 tensors
// have no NumPy dtype; convert them to f32 first.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <string>

#include "framework/io/bytes.h"

namespace convscope {

CONVSCOPE_API Tensor read_npy(const std::string& path);
// `name` stands in the errors. Sizes are checked against the bytes before anything is allocated.
CONVSCOPE_API Tensor parse_npy(Bytes file, const std::string& name);
// How many bytes a file has by its header, of which it is enough to have the `beginning`.
CONVSCOPE_API std::uint64_t npy_file_bytes(Bytes beginning, const std::string& name);

// Version 1.0, data aligned to 64 bytes as NumPy does it. Written atomically.
CONVSCOPE_API void write_npy(const std::string& path, const Tensor& tensor);
// All that stands before the data of `tensor`.
CONVSCOPE_API std::string npy_header(const Tensor& tensor);

}  // namespace convscope
