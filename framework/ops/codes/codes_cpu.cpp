// SPDX-License-Identifier: Apache-2.0
// codes_cpu.cpp: arrays of codes: divides the work between threads.
#include <algorithm>
#include <cstring>

#include "framework/int_math.h"
#include "framework/ops/codes/codes.h"
#include "framework/parallel.h"

namespace convscope {

constinit IsaTable<CodeKernels> code_kernels;
constinit KernelSlot<void(const RoundedImages&)> round_images_kernel{"round_images"};
constinit KernelSlot<void(const RealImages&)> real_images_kernel{"real_images"};
constinit KernelSlot<void(const CodesPool&)> pool_codes_kernel{"pool_codes"};

namespace {

constexpr std::int64_t kPiece = 4096;  // numbers per chunk

// Converts [count] adjacent numbers to [count] codes.
void round_all(RoundedRow row, std::int64_t count) {
  const CodeKernels kernels = code_kernels.get();
  parallel_for(count, kPiece, [&](std::int64_t begin, std::int64_t end) {
    RoundedRow piece = row;
    piece.from += begin;
    piece.to += begin;
    piece.pixels = end - begin;
    kernels.round(piece);
  });
}

// [N,C,pixels] -> [N,C/16,pixels,16].
void round_planes(const RoundedRow& row, const RoundedImages& a) {
  const CodeKernels kernels = code_kernels.get();
  const std::int64_t blocks = ceil_div(a.channels, std::int64_t{kCodeBlock});
  parallel_for(a.images * blocks, 1, [&](std::int64_t at, std::int64_t) {
    const std::int64_t n = at / blocks, c = at % blocks * kCodeBlock;
    RoundedRow block = row;
    block.channels = static_cast<int>(std::min<std::int64_t>(kCodeBlock, a.channels - c));
    block.lanes = kCodeBlock;
    block.pixels = block.plane = a.pixels;
    block.pixel = kCodeBlock;
    block.from += (n * a.channels + c) * a.pixels;
    block.to += at * a.pixels * kCodeBlock;
    kernels.round(block);
  });
}

// Rounds rows [N,C] to codes [N,C rounded up to 16]. The codes after the last channel are 0.
void round_rows(const RoundedRow& row, std::int64_t rows, std::int64_t channels) {
  const CodeKernels kernels = code_kernels.get();
  const std::int64_t padded = round_up(channels, std::int64_t{kCodeBlock});
  parallel_for(rows, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      RoundedRow one = row;
      one.pixels = channels;
      one.from += n * channels;
      one.to += n * padded;
      kernels.round(one);
      std::memset(one.to + channels, 0, static_cast<std::size_t>(padded - channels));
    }
  });
}

void round_cpu(const RoundedImages& a) {
  const RoundedRow row{.from = a.from, .step = *a.step, .low = a.low, .high = a.high, .to = a.to};
  if (a.in_nchw16c) {
    const std::int64_t lanes = round_up(a.channels, std::int64_t{kCodeBlock});
    round_all(row, a.images * lanes * a.pixels);
  } else if (a.pixels == 1) {
    round_rows(row, a.images, a.channels);
  } else {
    round_planes(row, a);
  }
}

// Converts [N,C/16,pixels,16] to [N,C,pixels], several pixels of a block of 16 channels at once.
void real_planes(const RealImages& a) {
  constexpr std::int64_t kPixels = 64;
  const CodeKernels kernels = code_kernels.get();
  const std::int64_t blocks = ceil_div(a.channels, std::int64_t{kCodeBlock});
  parallel_for(a.images * blocks, 1, [&](std::int64_t at, std::int64_t) {
    const std::int64_t n = at / blocks, c = at % blocks * kCodeBlock;
    const std::int64_t channels = std::min<std::int64_t>(kCodeBlock, a.channels - c);
    float numbers[kPixels * kCodeBlock];
    for (std::int64_t first = 0; first < a.pixels; first += kPixels) {
      const std::int64_t count = std::min(kPixels, a.pixels - first);
      kernels.real_numbers(a.from + (at * a.pixels + first) * kCodeBlock, a.is_signed, *a.step,
                           count * kCodeBlock, numbers);
      for (std::int64_t l = 0; l < channels; ++l) {
        float* const to = a.to + (n * a.channels + c + l) * a.pixels + first;
        for (std::int64_t p = 0; p < count; ++p) to[p] = numbers[p * kCodeBlock + l];
      }
    }
  });
}

void real_cpu(const RealImages& a) {
  if (!a.in_nchw16c) return real_planes(a);
  const CodeKernels kernels = code_kernels.get();
  const std::int64_t lanes = round_up(a.channels, std::int64_t{kCodeBlock});
  parallel_for(a.images * lanes * a.pixels, kPiece, [&](std::int64_t begin, std::int64_t end) {
    kernels.real_numbers(a.from + begin, a.is_signed, *a.step, end - begin, a.to + begin);
  });
}

void pool_cpu(const CodesPool& pool) {
  const CodeKernels kernels = code_kernels.get();
  parallel_for(pool.planes * pool.p, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      kernels.pool_row(pool, at / pool.p, at % pool.p);
    }
  });
}

}  // namespace
CONVSCOPE_KERNEL(round_images_kernel, cpu, round_cpu)
CONVSCOPE_KERNEL(real_images_kernel, cpu, real_cpu)
CONVSCOPE_KERNEL(pool_codes_kernel, cpu, pool_cpu)
}  // namespace convscope
