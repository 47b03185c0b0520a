// SPDX-License-Identifier: Apache-2.0
// activation_layout.cpp: how the images of an operator are stored in memory.
#include "layers/dispatch/activation_layout.h"

#include <algorithm>

#include "framework/check.h"
#include "framework/parallel.h"
#include "layers/dispatch/layout/block_copies.h"
#include "layers/dispatch/layout/block_copies_simd.h"
#include "layers/dispatch/layout/half_copies.h"

namespace convscope {

constinit IsaTable<BlockCopyKernels> block_copy_kernels;
constinit KernelSlot<void(const BlockCopy&)> block_copy_kernel{"convert_layout"};
constinit KernelSlot<void(const HalfCopy&)> half_copy_kernel{"convert_layout"};

namespace {

// Calls visit(plain, stored, count) for each block of `lanes` channels of each image. The arguments
// are the block's offset in the NCHW tensor, its offset in `stored`, and the number of its
// channels.
template <class Visit>
void for_each_block(const Shape& images, std::int64_t lanes, const Visit& visit) {
  const std::int64_t plane = images[2] * images[3];
  const std::int64_t blocks = ceil_div(images[1], lanes);
  parallel_chunks(images[0] * blocks, [&](std::int64_t chunk, int) {
    const std::int64_t c = chunk % blocks * lanes;
    visit((chunk / blocks * images[1] + c) * plane, chunk * plane * lanes,
          std::min(lanes, images[1] - c));
  });
}

template <class T>
void block(const Tensor& from, const Tensor& to) {
  const Shape& images = from.shape();
  const std::int64_t plane = images[2] * images[3], lanes = to.shape()[4];
  const auto* const plain = static_cast<const T*>(from.raw_data());
  auto* const nchw16c = static_cast<T*>(to.raw_data());
  for_each_block(images, lanes, [&](std::int64_t at, std::int64_t first, std::int64_t channels) {
    for (std::int64_t i = 0; i < plane; ++i) {
      for (std::int64_t c = 0; c < lanes; ++c) {
        nchw16c[first + i * lanes + c] = c < channels ? plain[at + c * plane + i] : T{0};
      }
    }
  });
}

template <class T>
void unblock(const Tensor& from, const Tensor& to) {
  const Shape& images = to.shape();
  const std::int64_t plane = images[2] * images[3], lanes = from.shape()[4];
  const auto* const nchw16c = static_cast<const T*>(from.raw_data());
  auto* const plain = static_cast<T*>(to.raw_data());
  for_each_block(images, lanes, [&](std::int64_t at, std::int64_t first, std::int64_t channels) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t i = 0; i < plane; ++i) {
        plain[at + c * plane + i] = nchw16c[first + i * lanes + c];
      }
    }
  });
}

// Calls move() with an integer of the size of the elements: any type is copied as such integers.
template <class Move>
void by_size(DType type, const Move& move) {
  switch (size_of(type)) {
    case 1:
      return move(std::uint8_t());
    case 2:
      return move(std::uint16_t());
    case 4:
      return move(std::uint32_t());
    default:
      return move(std::uint64_t());
  }
}

// Cuts all blocks into pieces of pixels and calls copy(offset in the planes, offset in the block,
// channels, pixels) for each piece. A thread takes about 128 KiB at a time: one piece, or several
// small ones.
template <class Copy>
void for_each_piece(const Shape& images, const Copy& copy) {
  constexpr std::int64_t kPixels = 2048;
  const std::int64_t plane = images[2] * images[3];
  if (plane == 0) return;
  const std::int64_t blocks = ceil_div(images[1], kChannelBlock);
  const std::int64_t pieces = ceil_div(plane, kPixels);
  const std::int64_t grain = std::max<std::int64_t>(1, kPixels / plane);
  parallel_for(images[0] * blocks * pieces, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t chunk = piece / pieces, first = piece % pieces * kPixels;
      const std::int64_t c = chunk % blocks * kChannelBlock;
      copy((chunk / blocks * images[1] + c) * plane + first,
           (chunk * plane + first) * kChannelBlock,
           static_cast<int>(std::min(kChannelBlock, images[1] - c)),
           std::min(kPixels, plane - first));
    }
  });
}

void copy_cpu(const BlockCopy& a) {
  const BlockCopyKernels& kernels = block_copy_kernels.get();
  const std::int64_t plane = a.images[2] * a.images[3];
  for_each_piece(
      a.images, [&](std::int64_t at, std::int64_t block, int channels, std::int64_t pixels) {
        if (a.to_nchw16c) {
          kernels.to_block(a.from + at, plane, channels, pixels, a.accumulate, a.to + block);
        } else {
          kernels.to_planes(a.from + block, plane, channels, pixels, a.accumulate, a.to + at);
        }
      });
}

}  // namespace
CONVSCOPE_KERNEL(block_copy_kernel, cpu, copy_cpu)

void convert_layout(const Tensor& from, const Shape& images, const Tensor& to, bool accumulate) {
  const bool blocks = to.rank() == 5;
  const Tensor& stored = blocks ? to : from;
  const Tensor& plain = blocks ? from : to;
  CONVSCOPE_CHECK(images.rank() == 4 && plain.numel() == images.numel() &&
                      stored.shape() == stored_shape(images, ActivationLayout::nchw16c),
                  "convert_layout", "expected the numbers of images ", images,
                  " in one tensor and blocks of 16 channels of them in the other, got ", from.str(),
                  " and ", to.str());
  block_copy_kernel.get(from.device())({.images = images,
                                        .to_nchw16c = blocks,
                                        .accumulate = accumulate,
                                        .from = from.data<float>(),
                                        .to = to.data<float>()});
}

Tensor stored_images(const Tensor& images, ActivationLayout layout) {
  if (layout == ActivationLayout::nchw) return images;
  const Tensor out = Tensor::empty(stored_shape(images.shape(), layout), images.dtype());
  if (layout == ActivationLayout::nchw16c && images.dtype() == DType::f32) {
    convert_layout(images, images.shape(), out);
    return out;
  }
  by_size(images.dtype(), [&](auto unit) { block<decltype(unit)>(images, out); });
  return out;
}

Tensor plain_images(const Tensor& stored, const Shape& shape, ActivationLayout layout) {
  if (layout == ActivationLayout::nchw) return stored;
  const Tensor out = Tensor::empty(shape, stored.dtype());
  if (layout == ActivationLayout::nchw16c && stored.dtype() == DType::f32) {
    convert_layout(stored, shape, out);
    return out;
  }
  by_size(stored.dtype(), [&](auto unit) { unblock<decltype(unit)>(stored, out); });
  return out;
}

bool has_clean_lanes(const Tensor& stored, const Shape& shape, ActivationLayout layout) {
  if (layout == ActivationLayout::nchw) return true;
  const std::int64_t lanes = channel_block(shape[1], layout);
  const std::int64_t blocks = ceil_div(shape[1], lanes), pixels = shape[2] * shape[3];
  const std::int64_t first = shape[1] - (blocks - 1) * lanes;  // of the last block's unused lanes
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
      const std::int64_t at = (((n + 1) * blocks - 1) * pixels + pixel) * lanes;
      for (std::int64_t lane = first; lane < lanes; ++lane) {
        if (stored.at(at + lane) != 0) return false;
      }
    }
  }
  return true;
}

}  // namespace convscope
