// SPDX-License-Identifier: Apache-2.0
// int8_gemm_instances.cuh: the compiled kernels of int8_gemm_tiles.cuh, for codes with and without
// a sign. Two files, because each takes a while to compile.
// Read next  int8_gemm_tiles.cuh
#pragma once

#include <cstddef>
#include <span>

#include "layers/conv2d/int8/cuda/int8_gemm_tiles.cuh"

namespace convscope::int8 {

struct ByteInstance {
  int pixels, channels;  // of a block's tile
  unsigned threads;
  std::size_t shared_bytes;
  int blocks;  // that share a multiprocessor
  // What one multiprocessor takes for a step of a tile, and for its beginning and end; fitted to an
  // H100. Only their ratios matter: they choose among the tiles.
  double step_us, around_us;
  void (*kernel)(const ByteGather);
};

template <class V>
inline ByteInstance byte_instance(double step_us, double around_us) {
  return {V::kPixels, V::kChannels, V::kThreads, V::kSharedBytes,
          V::kBlocks, step_us,      around_us,   gather_bytes_kernel<V>};
}

template <bool kSigned>
std::span<const ByteInstance> byte_instances_of() {
  static const ByteInstance kInstances[] = {
      byte_instance<ByteVariant<kSigned, 2, 1, 256, 3, 1>>(1.2, 4.0),
      byte_instance<ByteVariant<kSigned, 2, 1, 128, 3, 2>>(0.8, 3.0),
      byte_instance<ByteVariant<kSigned, 4, 1, 64, 4, 1>>(0.9, 3.0),
      byte_instance<ByteVariant<kSigned, 2, 1, 64, 4, 2>>(0.5, 2.5),
      byte_instance<ByteVariant<kSigned, 1, 1, 128, 4, 2>>(0.5, 2.5),
      byte_instance<ByteVariant<kSigned, 1, 1, 64, 4, 3>>(0.3, 2.0),
      byte_instance<ByteVariant<kSigned, 2, 1, 64, 2, 3>>(0.6, 2.0),
      byte_instance<ByteVariant<kSigned, 1, 1, 64, 2, 5>>(0.4, 2.0),
  };
  return kInstances;
}

std::span<const ByteInstance> unsigned_byte_instances();
std::span<const ByteInstance> signed_byte_instances();

}  // namespace convscope::int8
