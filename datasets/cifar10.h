// SPDX-License-Identifier: Apache-2.0
// cifar10.h: the binary version of CIFAR-10. A record has one label byte and an image of 32x32
// pixels in 3072 bytes: all red values, then all green ones, then all blue ones. The
// files are data_batch_1..5.bin and test_batch.bin; batches.meta.txt (class names) may be missing.
// Source: A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009.
#pragma once

#include <string>

#include "datasets/dataset.h"
#include "framework/io/bytes.h"

namespace convscope {

inline constexpr std::size_t kCifar10RecordBytes = 1 + 3 * 32 * 32;

// Returns images and labels of a file. Requires whole records and labels 0..9; throws kData.
CONVSCOPE_API Dataset parse_cifar10(Bytes file, const std::string& name);

}  // namespace convscope
