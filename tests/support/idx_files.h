// SPDX-License-Identifier: Apache-2.0
// idx_files.h: small generated data sets and their files, also in gzip.
#pragma once

#include <zlib.h>

#include <string>

#include "datasets/dataset.h"
#include "datasets/files/idx.h"
#include "framework/io/atomic_file.h"

namespace convscope::testing {

inline Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Returns images in which the value of a pixel identifies the image and the position. The labels
// count from 0 to classes-1, then from 0 again.
inline Dataset numbered_dataset(std::int64_t count, std::int64_t channels = 1,
                                std::int64_t size = 4, int classes = 10) {
  Dataset out;
  out.name = "numbered";
  out.images = Tensor::empty({count, channels, size, size}, DType::u8);
  out.labels = Tensor::empty({count}, DType::i32);
  out.classes = classes;
  std::uint8_t* pixel = out.images.data<std::uint8_t>();
  const std::int64_t each = channels * size * size;
  for (std::int64_t n = 0; n < count; ++n) {
    for (std::int64_t i = 0; i < each; ++i) {
      pixel[n * each + i] = static_cast<std::uint8_t>((n * 31 + i * 7) % 256);
    }
    out.labels.data<std::int32_t>()[n] = static_cast<std::int32_t>(n % classes);
  }
  set_channel_statistics(out);
  return out;
}

inline std::string gzipped(const std::string& content) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, static_cast<uLong>(content.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string image_bytes(const Dataset& from) {
  return idx_bytes(from.images.reshape({from.size(), from.images.dim(2), from.images.dim(3)}));
}
inline std::string label_bytes(const Dataset& from) { return idx_bytes(from.labels.to(DType::u8)); }

}  // namespace convscope::testing
