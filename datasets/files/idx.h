// SPDX-License-Identifier: Apache-2.0
// idx.h: the IDX format of MNIST and similar sets: u8 arrays, raw or gzip.
//
//   0  0 0 8 r         two zeros, type code 8 (u8), number of axes r
//   4  r sizes         32 bits each, big-endian
//      data            row-major
// Format: Y. LeCun, C. Cortes, C. Burges: The MNIST database of handwritten digits, 1998.
#pragma once

#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "framework/io/bytes.h"

namespace convscope {

// Returns a u8 tensor. Checks sizes against the file's bytes before any allocation; unpacks a gzip
// file only as far as its IDX header specifies. Throws kData.
CONVSCOPE_API Tensor parse_idx(Bytes file, const std::string& name);
CONVSCOPE_API Tensor read_idx(const std::string& path);
// Returns the bytes of an IDX file for a tensor.
CONVSCOPE_API std::string idx_bytes(const Tensor& tensor);

// Returns the file names to look for: "train-images" and 3 axes give train-images-idx3-ubyte,
// train-images.idx3-ubyte, each also with .gz.
CONVSCOPE_API std::vector<std::string> idx_spellings(const std::string& stem, int axes);

// Loads the four files of an MNIST-like set: {train,t10k}-{images,labels}.
CONVSCOPE_API DatasetSplits load_idx_splits(const std::string& set, const std::string& root,
                                            const std::vector<std::string>& class_names);

}  // namespace convscope
