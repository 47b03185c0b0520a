// SPDX-License-Identifier: Apache-2.0
// int8_gemm_instances.cuh: the compiled kernels of int8_gemm_tiles.cuh, for signed and unsigned
// codes. They are in two files, because each takes a while to compile.
// Read next  int8_gemm_tiles.cuh
#pragma once

#include <cstddef>
#include <span>

#include "layers/conv2d/int8/int8_gemm/cuda/int8_gemm_tiles.cuh"

namespace convscope::int8 {

struct ByteInstance {
  const char* name;      // of its costs
  int pixels, channels;  // size of a block's tile
  unsigned threads;
  std::size_t shared_bytes;
  int blocks;  // blocks that share an SM
  void (*kernel)(const ByteGather);
};

template <class V>
inline ByteInstance byte_instance(const char* name) {
  return {name,        V::kPixels,      V::kChannels,
          V::kThreads, V::kSharedBytes, V::kBlocks,
          gather_bytes_kernel<V>};
}

template <bool kSigned>
std::span<const ByteInstance> byte_instances_of() {
  static const ByteInstance kInstances[] = {
      byte_instance<ByteVariant<kSigned, 2, 1, 128, 3, 2>>("128x128"),
      byte_instance<ByteVariant<kSigned, 2, 1, 64, 4, 2>>("128x64"),
      byte_instance<ByteVariant<kSigned, 1, 1, 128, 4, 2>>("64x128"),
      byte_instance<ByteVariant<kSigned, 1, 1, 64, 4, 3>>("64x64"),
      byte_instance<ByteVariant<kSigned, 2, 1, 64, 2, 3>>("128x64 two stages"),
      byte_instance<ByteVariant<kSigned, 1, 1, 64, 2, 5>>("64x64 two stages"),
  };
  return kInstances;
}

std::span<const ByteInstance> unsigned_byte_instances();
std::span<const ByteInstance> signed_byte_instances();

}  // namespace convscope::int8
