// SPDX-License-Identifier: Apache-2.0
// inflater.h: decompresses deflate streams (gzip files, entries of zip archives) in steps, so
// that a caller can check a header before it decides how much to unpack.
#pragma once

#include <memory>
#include <string>

#include "framework/io/bytes.h"

namespace convscope {

enum class DeflateFormat { raw, gzip };

class CONVSCOPE_API Inflater {
 public:
  // Reads `compressed`, which must outlive the object. Errors have kind kData and mention `name`.
  Inflater(Bytes compressed, DeflateFormat format, std::string name);
  ~Inflater();

  // Unpacks up to `bytes` bytes to `to` and returns their number. The number is below `bytes` only
  // at the end of the stream (for gzip, at the end of the last member). Throws for a truncated or
  // damaged stream, or a wrong checksum.
  std::size_t read(std::uint8_t* to, std::size_t bytes);
  // Returns the number of unused compressed bytes.
  std::size_t left() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

constexpr bool is_gzip(Bytes file) {
  return file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b;
}

// Returns the maximum size of the data in `bytes` compressed bytes, which the deflate format
// limits. If a file claims a larger size, the reader refuses the file before reserving memory.
constexpr std::uint64_t largest_inflated(std::uint64_t bytes) { return bytes * 1032; }

}  // namespace convscope
