// SPDX-License-Identifier: Apache-2.0
// int8_gemm_instances.cuh: the compiled kernels of int8_gemm_tiles.cuh, for signed and unsigned
// codes. They are in two files, because each takes a while to compile.
// Read next  int8_gemm_tiles.cuh
#pragma once

#include <cstddef>
#include <span>

#include "layers/conv2d/int8/int8_gemm/cuda/int8_gemm_tiles.cuh"

namespace convscope::int8 {

// Microseconds of a tile are steps * step + around. `work` is for an SM full of tiles, `wait` for
// an SM that waits for this tile. Fitted to an H100 on the layers of ResNet-18 and six 1x1 layers,
// with 1 and 32 images. Only the ratios matter: they choose among the tiles.
struct ByteTileTime {
  double work_step, work_around, wait_step, wait_around;
};

struct ByteInstance {
  int pixels, channels;  // size of a block's tile
  unsigned threads;
  std::size_t shared_bytes;
  int blocks;  // blocks that share an SM
  ByteTileTime us;
  void (*kernel)(const ByteGather);
};

template <class V>
inline ByteInstance byte_instance(const ByteTileTime& us) {
  return {V::kPixels, V::kChannels, V::kThreads,           V::kSharedBytes,
          V::kBlocks, us,           gather_bytes_kernel<V>};
}

template <bool kSigned>
std::span<const ByteInstance> byte_instances_of() {
  static const ByteInstance kInstances[] = {
      byte_instance<ByteVariant<kSigned, 2, 1, 128, 3, 2>>({0.414, 2.42, 0.686, 2.33}),
      byte_instance<ByteVariant<kSigned, 2, 1, 64, 4, 2>>({0.377, 1.92, 0.467, 0.79}),
      byte_instance<ByteVariant<kSigned, 1, 1, 128, 4, 2>>({0.286, 1.71, 0.362, 2.04}),
      byte_instance<ByteVariant<kSigned, 1, 1, 64, 4, 3>>({0.210, 0.79, 0.452, 1.23}),
      byte_instance<ByteVariant<kSigned, 2, 1, 64, 2, 3>>({0.365, 1.53, 0.514, 1.66}),
      byte_instance<ByteVariant<kSigned, 1, 1, 64, 2, 5>>({0.290, 0.71, 0.498, 1.21}),
  };
  return kInstances;
}

std::span<const ByteInstance> unsigned_byte_instances();
std::span<const ByteInstance> signed_byte_instances();

}  // namespace convscope::int8
