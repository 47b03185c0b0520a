// SPDX-License-Identifier: Apache-2.0
// safetensors.h: reads and writes safetensors files, which hold named tensors: the format of
// checkpoints. PyTorch and NumPy read such a file with one call of the `safetensors` package.
//
//   0      u64, length of the header H, little-endian
//   8      JSON {"name": {"dtype": "F32", "shape": [2,3], "data_offsets": [begin, end]}, ...,
//                "__metadata__": {text: text}}, padded with spaces
//   8 + H  the data of all tensors, one after the other
// The reader is strict. It requires a header of at most 100 MB, unique names and known dtypes.
// Offsets must be inside the file, agree with the shapes, and leave neither gap nor overlap.
// Format: https://github.com/huggingface/safetensors
#pragma once

#include <map>
#include <string>

#include "framework/io/bytes.h"

namespace convscope {

struct CONVSCOPE_API SafetensorsFile {
  NamedTensors tensors;  // by name
  std::map<std::string, std::string> metadata;

  const Tensor* find(const std::string& name) const;  // null when not found
};

// The content of the header. Its sizes agree with the size of the file.
struct CONVSCOPE_API SafetensorsHeader {
  struct Entry {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;
    std::int64_t begin = 0, end = 0;  // bytes of the data
  };
  std::vector<Entry> tensors;
  std::map<std::string, std::string> metadata;
  std::int64_t data_bytes = 0;
};
// Reads only the header.
CONVSCOPE_API SafetensorsHeader read_safetensors_header(const std::string& path);

// Reads a file. It reads the data only if the header is valid.
CONVSCOPE_API SafetensorsFile read_safetensors(const std::string& path);
CONVSCOPE_API SafetensorsFile parse_safetensors(Bytes file, const std::string& name);
// Writes a file atomically. Tensors are sorted by element size, then by name, so the same content
// gives the same bytes.
CONVSCOPE_API void write_safetensors(const std::string& path, const NamedTensors& tensors,
                                     const std::map<std::string, std::string>& metadata = {});

}  // namespace convscope
