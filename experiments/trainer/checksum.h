// SPDX-License-Identifier: Apache-2.0
// checksum.h: the checksum of a checkpoint: a CRC-32 over every tensor (name, type, shape, bytes)
// and every entry of the metadata except the checksum.
#pragma once

#include <string>

#include "framework/io/safetensors.h"

namespace convscope {

inline constexpr const char* kChecksumKey = "crc32";

// Returns eight hexadecimal digits, independent of the order of tensors in the file.
CONVSCOPE_API std::string checksum_of(const SafetensorsFile& file);

enum class Checksum { fits, none, differs };
CONVSCOPE_API Checksum verify_checksum(const SafetensorsFile& file);

}  // namespace convscope
