// SPDX-License-Identifier: Apache-2.0
// checksum.h: whether a checkpoint is what was written: a CRC-32 over every tensor (name, type,
// shape, bytes) and every entry of the metadata but its own.
#pragma once

#include <string>

#include "framework/io/safetensors.h"

namespace convscope {

inline constexpr const char* kChecksumKey = "crc32";

// Eight hexadecimal digits. The order of the tensors in the file does not count.
CONVSCOPE_API std::string checksum_of(const SafetensorsFile& file);

enum class Checksum { fits, none, differs };
CONVSCOPE_API Checksum verify_checksum(const SafetensorsFile& file);

}  // namespace convscope
