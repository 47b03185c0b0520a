// SPDX-License-Identifier: Apache-2.0
// half_pack_launch.cuh: launches of the kernels of half_pack.cuh that pack images [N,C,H,W].
// Read next  half_pack.cuh
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/conv2d/shared/cuda/half_pack.cuh"

namespace convscope::half_tiles {

// Calls body(std::integral_constant<int, channels_log2>).
template <class Body>
void with_channels_log2(int channels_log2, Body&& body) {
  channels_log2 == 3   ? body(std::integral_constant<int, 3>{})
  : channels_log2 == 4 ? body(std::integral_constant<int, 4>{})
  : channels_log2 == 5 ? body(std::integral_constant<int, 5>{})
                       : body(std::integral_constant<int, 6>{});
}

inline std::int64_t pixel_blocks(const PackPixels& z, std::int64_t images) {
  return images * ceil_div(z.area, z.pixels());
}
inline std::int64_t blocks_of(const PackPixels& z, std::int64_t images) {
  return pixel_blocks(z, images) * z.groups * z.channel_blocks();
}

template <class In, int kPlanes>
void launch_pack(const PackPixels& z, std::int64_t images) {
  with_channels_log2(z.channels_log2, [&](auto log2) {
    launch(pack_pixels_kernel<In, kPlanes, decltype(log2)::value>,
           {.grid = dim3(static_cast<unsigned>(pixel_blocks(z, images)),
                         static_cast<unsigned>(z.groups * z.channel_blocks())),
            .block = dim3(256),
            .overlaps_previous = true},
           z);
  });
}

// Packs two images in one launch, if their blocks have equally many channels.
template <class In, int kPlanes>
void launch_pack_two(const PackPixels& first, const PackPixels& second, std::int64_t images) {
  const std::int64_t first_blocks = blocks_of(first, images);
  const std::int64_t all = first_blocks + blocks_of(second, images);
  if (first.channels_log2 != second.channels_log2 || all > 0x7fff0000) {
    launch_pack<In, kPlanes>(first, images);
    return launch_pack<In, kPlanes>(second, images);
  }
  with_channels_log2(first.channels_log2, [&](auto log2) {
    launch(
        pack_two_kernel<In, kPlanes, decltype(log2)::value>,
        {.grid = dim3(static_cast<unsigned>(all)), .block = dim3(256), .overlaps_previous = true},
        first, second, static_cast<int>(first_blocks));
  });
}

}  // namespace convscope::half_tiles
