// SPDX-License-Identifier: Apache-2.0
// deform_instances.cuh: the compiled kernels of deform_tiles.cuh, by type of operands. The kernels
// are spread over three files, because each file takes a while to compile.
// Read next  deform_tiles.cuh
#pragma once

#include <cstddef>
#include <span>

#include "layers/deform_conv2d/fused/cuda/deform_tiles.cuh"

namespace convscope::deform_cuda {

// Times on one SM, measured on an H100: `stage` is the time of each stage of a tile, `around` the
// time of the beginning and end of a tile. Only ratios matter, because the times choose among the
// tiles.
struct TileTime {
  double stage = 1, around = 1;
};

struct Instance {
  int rows, columns;  // of a block's tile
  int deep;           // steps of 64 elements of the K dimension in a stage
  unsigned threads;
  std::size_t shared_bytes, sampled_bytes;  // without and with the table of a sampler
  int blocks;                               // on one SM
  TileTime y_us = {}, dx_us = {}, dw_us = {};
  // Null where this tile has no such kernel.
  void (*y)(const Gather<PlaceView>) = nullptr;
  void (*dx)(const Gather<ListView>) = nullptr;
  void (*dw)(const WeightGather) = nullptr;
  void (*places)(const PlaceGradient) = nullptr;  // doffset, dmask
};

// A tile, and the kernels that it is compiled for:
//   Kernels<Tile<ByF32, 4, 1, 64, 2, 1>>().y({2.5, 4}).dx({2.8, 4}).instance
template <class V>
struct Kernels {
  Instance instance{V::kTileRows,    V::kTileColumns,  V::kDeep,  V::kThreads,
                    V::kSharedBytes, V::kSampledBytes, V::kBlocks};

  Kernels& y(TileTime us) {
    instance.y_us = us;
    instance.y = gather_kernel<V, PlaceView>;
    return *this;
  }
  Kernels& dx(TileTime us) {
    instance.dx_us = us;
    instance.dx = gather_kernel<V, ListView>;
    return *this;
  }
  Kernels& dw(TileTime us) {
    instance.dw_us = us;
    instance.dw = weight_kernel<V>;
    return *this;
  }
  Kernels& places() {
    instance.places = place_kernel<V>;
    return *this;
  }
};

std::span<const Instance> f32_instances();  // three products of fp16
std::span<const Instance> f16_instances();  // f16, and f32 as TF32
std::span<const Instance> bf16_instances();

}  // namespace convscope::deform_cuda
