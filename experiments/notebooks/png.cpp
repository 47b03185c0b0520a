// SPDX-License-Identifier: Apache-2.0
// png.cpp: an image as the bytes of a PNG file: three chunks around rows compressed by zlib.
#include "experiments/notebooks/png.h"

#include <zlib.h>

#include "framework/check.h"

namespace convscope {
namespace {

constexpr std::int64_t kLargest = 1 << 14;  // pixels per side; a larger picture does not fit a page

std::string big_endian(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
  return out;
}

// Returns a chunk of the file: length, name, data, and a check sum over name and data.
std::string chunk(const std::string& name, const std::string& data) {
  const std::string body = name + data;
  const auto sum =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + body +
         big_endian(static_cast<std::uint32_t>(sum));
}

std::string packed(const std::string& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string out(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()),
                               static_cast<uLong>(bytes.size()), Z_BEST_SPEED);
  CONVSCOPE_CHECK(status == Z_OK, "png", "expected zlib to pack ", bytes.size(),
                  " bytes, got its status ", status);
  out.resize(size);
  return out;
}

}  // namespace

std::string to_png(const Pixels& p) {
  CONVSCOPE_CHECK(p.channels == 1 || p.channels == 3, "png", "expected 1 or 3 channels, got ",
                  p.channels);
  CONVSCOPE_CHECK(p.height > 0 && p.width > 0 && p.height <= kLargest && p.width <= kLargest, "png",
                  "expected sides of 1 to ", kLargest, " pixels, got ", p.height, "x", p.width);
  const auto row = static_cast<std::size_t>(p.width * p.channels);
  CONVSCOPE_CHECK(p.values.size() == row * static_cast<std::size_t>(p.height), "png", "expected ",
                  p.height, "x", p.width, "x", p.channels, " values, got ", p.values.size());
  std::string rows;
  for (std::size_t i = 0; i < p.values.size(); ++i) {
    if (i % row == 0) rows += '\0';  // the filter "none" precedes each row
    rows += static_cast<char>(p.values[i]);
  }
  const std::string head = big_endian(static_cast<std::uint32_t>(p.width)) +
                           big_endian(static_cast<std::uint32_t>(p.height)) + '\x08' +
                           (p.channels == 3 ? '\x02' : '\0') + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", head) + chunk("IDAT", packed(rows)) +
         chunk("IEND", "");
}

}  // namespace convscope
