// SPDX-License-Identifier: Apache-2.0
// npy.h: NumPy's file format for a single array.
//
// Reads versions 1.0 and 2.0, little-endian f4 f8 f2 i4 i1 u1, C order. Refuses Fortran order,
// other dtypes, and truncated or too long files; the error message says how to convert the file
// with NumPy. NumPy has no dtype for bf16 tensors; convert them to f32 first.
#pragma once

#include <string>

#include "framework/io/bytes.h"

namespace convscope {

CONVSCOPE_API Tensor read_npy(const std::string& path);
// Parses a file; `name` appears in errors. Checks sizes against the bytes before any allocation.
CONVSCOPE_API Tensor parse_npy(Bytes file, const std::string& name);
// Returns the file size that the header specifies; the `beginning` of the file is enough.
CONVSCOPE_API std::uint64_t npy_file_bytes(Bytes beginning, const std::string& name);

// Writes version 1.0, atomically, with data aligned to 64 bytes as NumPy does.
CONVSCOPE_API void write_npy(const std::string& path, const Tensor& tensor);
// Returns all bytes before the data of `tensor`.
CONVSCOPE_API std::string npy_header(const Tensor& tensor);

}  // namespace convscope
