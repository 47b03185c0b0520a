// SPDX-License-Identifier: Apache-2.0
// inflater.h: reads deflated bytes (gzip files, entries of zip archives) piece by piece, so that a
// caller can look at a header before it decides how much it is willing to unpack.
#pragma once

#include <memory>
#include <string>

#include "framework/io/bytes.h"

namespace convscope {

enum class DeflateFormat { raw, gzip };

class CONVSCOPE_API Inflater {
 public:
  // `name` stands in the errors, which are of kind kData. `compressed` must outlive the object.
  Inflater(Bytes compressed, DeflateFormat format, std::string name);
  ~Inflater();

  // Unpacks up to `bytes` bytes; returns fewer only at the end of the stream (of gzip, of its last
  // member). A stream that is cut
  // or damaged (checksum included) is an error.
  std::size_t read(std::uint8_t* to, std::size_t bytes);
  // Compressed bytes not used yet.
  std::size_t left() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

constexpr bool is_gzip(Bytes file) {
  return file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b;
}

// Deflate cannot pack tighter than this, so `bytes` compressed bytes never hold more than
// largest_inflated(bytes): a claim above it is refused before memory is reserved for it.
constexpr std::uint64_t largest_inflated(std::uint64_t bytes) { return bytes * 1032; }

}  // namespace convscope
