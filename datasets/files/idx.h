// SPDX-License-Identifier: Apache-2.0
// idx.h: the IDX format of MNIST and its relatives: u8 arrays, raw or gzip.
//
//   0  0 0 8 r         two zeros, type code 8 (u8), number of axes r
//   4  r sizes         32 bits each, highest byte first
//      data            row-major
// Format: Y. LeCun, C. Cortes, C. Burges: The MNIST database of handwritten digits, 1998.
#pragma once

#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "framework/io/bytes.h"

namespace convscope {

// u8 tensor. Sizes are checked against the bytes of the file before anything is allocated; a gzip
// file is unpacked only as far as its IDX header says. Errors are of kind kData.
CONVSCOPE_API Tensor parse_idx(Bytes file, const std::string& name);
CONVSCOPE_API Tensor read_idx(const std::string& path);
// The same bytes, from a tensor.
CONVSCOPE_API std::string idx_bytes(const Tensor& tensor);

// The names under which a file is looked for: "train-images" and 3 axes give
// train-images-idx3-ubyte, train-images.idx3-ubyte, each also with .gz.
CONVSCOPE_API std::vector<std::string> idx_spellings(const std::string& stem, int axes);

// The four files of an MNIST-like set: {train,t10k}-{images,labels}.
CONVSCOPE_API DatasetSplits load_idx_splits(const std::string& set, const std::string& root,
                                            const std::vector<std::string>& class_names);

}  // namespace convscope
