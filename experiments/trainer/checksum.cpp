// SPDX-License-Identifier: Apache-2.0
// checksum.cpp: the checksum of a checkpoint: a CRC-32 over tensors and metadata.
#include "experiments/trainer/checksum.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <vector>

namespace convscope {
namespace {

class Crc {
 public:
  void add(const void* data, std::size_t bytes) {
    value_ = crc32_z(value_, static_cast<const Bytef*>(data), bytes);
  }
  // Adds the length of a text before the text, so that "ab" + "c" differs from "a" + "bc".
  void add(std::string_view text) {
    add(static_cast<std::int64_t>(text.size()));
    add(text.data(), text.size());
  }
  void add(std::int64_t number) { add(&number, sizeof number); }
  std::string text() const {
    std::array<char, 9> digits{};
    std::snprintf(digits.data(), digits.size(), "%08lx", value_ & 0xffffffffUL);
    return digits.data();
  }

 private:
  uLong value_ = crc32_z(0, nullptr, 0);
};

}  // namespace

std::string checksum_of(const SafetensorsFile& file) {
  std::vector<const NamedTensor*> tensors;
  for (const NamedTensor& tensor : file.tensors) tensors.push_back(&tensor);
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  Crc crc;
  for (const NamedTensor* const named : tensors) {
    const Tensor& tensor = named->tensor;
    crc.add(named->name);
    crc.add(name_of(tensor.dtype()));
    crc.add(static_cast<std::int64_t>(tensor.shape().rank()));
    for (const std::int64_t size : tensor.shape()) crc.add(size);
    crc.add(tensor.raw_data(), static_cast<std::size_t>(tensor.size_bytes()));
  }
  for (const auto& [key, value] : file.metadata) {
    if (key == kChecksumKey) continue;
    crc.add(key);
    crc.add(value);
  }
  return crc.text();
}

namespace {
// Files of earlier versions lack the key. A key that differs by one letter is a damaged key and not
// a missing one.
bool is_damaged_key(std::string_view key) {
  const std::string_view right = kChecksumKey;
  if (key.size() != right.size()) return false;
  int differ = 0;
  for (std::size_t i = 0; i < key.size(); ++i) differ += key[i] != right[i] ? 1 : 0;
  return differ == 1;
}
}  // namespace

Checksum verify_checksum(const SafetensorsFile& file) {
  const auto entry = file.metadata.find(kChecksumKey);
  if (entry == file.metadata.end()) {
    const bool damaged = std::ranges::any_of(
        file.metadata, [](const auto& one) { return is_damaged_key(one.first); });
    return damaged ? Checksum::differs : Checksum::none;
  }
  return entry->second == checksum_of(file) ? Checksum::fits : Checksum::differs;
}

}  // namespace convscope
