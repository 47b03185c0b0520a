// SPDX-License-Identifier: Apache-2.0
// deform_fused_cpu.cpp: deformable convolution without a buffer of columns. The samples of a few
// pixels are written into a panel, which register tiles multiply while the panel is in the cache.
//
// Formula    y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                w[k,c,r,s] mask[n,j,p,q] sample(x[n, g C/G + c], v, u)   (problem.h)
// Textbook   columns = all samples of an image       # [C R S, P Q], R S times as large as x
//            y = w columns                           # as in the frameworks, deform_im2col_gemm
// Method     for each image, part of the channels and chunk of pixels (defined in deform_plan.h):
//              places: the sampling positions of the taps of these pixels, once for all channels
//              panel [pixels, R S channels of the part] = samples: 16 channels at a time
//              y += panel w, by the register tiles of direct convolution in blocks
//            If x is in blocks of 16 channels, it is read directly. If x is [N,C,H,W], some
//            channels of an image are first copied into blocks, and y is written through scratch
//            memory. Each thread computes some chunks of an image or, if images are small, whole
//            images.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], offset [N,2 O R S,P,Q], mask [N,O R S,P,Q], y [N,K,P,Q],
//            f32, sums in f32; x, y and dx also in blocks [N,C/16,H,W,16]
// Supports   f32; every stride, dilation, padding, number of groups and of offset groups; with and
//            without a mask. Images in blocks require that each group and offset group has whole
//            blocks
// Cost       FLOPs = 2 N K P Q (C/G) R S, and 4 multiply-adds for each sample; bytes = the tensors;
//            workspace = a panel for each thread (a third of L2), and for [N,C,H,W] a part of an
//            image. The algorithm is compute-bound from about K = 32 on
// Numerics   A sample takes at most seven roundings. Four are in the weight of a corner (1 - down,
//            times mask, 1 - right, their product), three in multiplying and adding
//            (deform_fused_simd.cpp). Each error is at most half an eps, so the error of a sample
//            is 3.5 eps if all have the same sign. The sum over samples adds 8 eps
//            (framework/simd/sum_chain.h). The total is 11.5 eps, so error_growth is 12. dw is the
//            same sum. In dx a term is a sum g (8 eps) times a weight (2 eps). doffset and dmask
//            end with at most seven roundings after sums of such g. If many g are added, their
//            errors cancel in part, while the error of the addition grows; together they stay at 8
//            eps. Only the sums of dx are not cut into chains: where more than 160 samples add to
//            one pixel, the error of the pixel grows with the square root of the number of samples.
//            Results of parts of the channels are added in a fixed order: same bits on each run and
//            with any number of threads
// Backward   dx, doffset, dmask: a panel holds the samples' gradient dy w^T for one block of
//            channels. Each element is added to the four corners of dx, and multiplied by the four
//            corners of x. These products give the gradients of the offsets and of the mask. A
//            thread owns a block of channels of dx, so two threads never add to the same element.
//            dw: panels of samples are multiplied by dy. dx, doffset, dmask are assigned, dw is
//            assigned or added to.
// Choices    a chunk has 56 pixels, which are four tiles of 14 pixels (AVX-512), so four tiles
//            reuse the weights in L1. With 64 channels and a 3x3 kernel the panel has 126 KiB.
// Source     J. Dai et al. 2017: arXiv 1703.06211; X. Zhu et al. 2019: arXiv 1811.11168. Both
//            write the columns.
// Read next  deform_fused_lesson_cpu.cpp, one pixel at a time; deform_fused_simd.cpp, the samples;
//            deform_backward.cpp
#include <array>

#include "framework/ops/gemm/gemm_kernels.h"
#include "layers/deform_conv2d/algorithm.h"
#include "layers/deform_conv2d/fused/cpu/deform_plan.h"
#include "layers/dispatch/layout/block_copies_simd.h"

namespace convscope {

constinit IsaTable<DeformKernels> deform_kernels;

namespace deform {

// ---- what all directions share ------------------------------------------------------------------

DeformPlaces places_at(const DeformTiling& plan, float* all, Index tap) {
  return {.data = all + tap * plan.places_floats()};
}

void Places::compute(Index n, Index group, Index first, Index count, float* to) const {
  const DeformConv2dProblem& z = plan_.z;
  std::array<float, DeformTiling::kChunkPixels> base_v, base_u;
  Index p = first / z.q(), q = first % z.q();
  for (std::size_t j = 0; j < static_cast<std::size_t>(count); ++j) {
    base_v[j] = static_cast<float>(p * z.stride_h - z.pad_top);
    base_u[j] = static_cast<float>(q * z.stride_w - z.pad_left);
    if (++q == z.q()) q = 0, ++p;
  }
  for (Index tap = 0; tap < plan_.taps; ++tap) {
    const Index at = (n * z.offset_groups + group) * plan_.taps + tap;
    const float* const offset = offset_ + 2 * at * plan_.pixels + first;
    deform_kernels.get().places(
        {.pixels = static_cast<int>(count),
         .base_v = base_v.data(),
         .base_u = base_u.data(),
         .tap_v = static_cast<float>(tap / z.s * z.dilation_h),
         .tap_u = static_cast<float>(tap % z.s * z.dilation_w),
         .offset_v = offset,
         .offset_u = offset + plan_.pixels,
         .mask = mask_ == nullptr ? nullptr : mask_ + at * plan_.pixels + first,
         .height = static_cast<std::int32_t>(z.h),
         .width = static_cast<std::int32_t>(z.w),
         .to = places_at(plan_, to, tap)});
  }
}

void fill_panel(const DeformTiling& plan, Index g, Index begin, Index end, Index pixels,
                const float* x, Index x_block, float* places, float* panel) {
  const Index step = plan.panel_row(begin, end), channels = plan.channels(begin, end);
  const Index first_group = plan.offset_group(g, begin);
  // A row of the panel holds the blocks in order. A block with fewer than 16 channels writes beyond
  // its end, and the next block overwrites these elements.
  for (Index tap = 0; tap < plan.taps; ++tap) {
    for (Index b = begin; b < end;) {
      const Index group = plan.offset_group(g, b);
      Index next = b + 1;  // whole blocks of one offset group are sampled together
      while (next < end && plan.offset_group(g, next) == group &&
             plan.block(next - 1).channels == kChannelBlock)
        ++next;
      deform_kernels.get().sample(
          {.pixels = static_cast<int>(pixels),
           .places = places_at(
               plan, places + (group - first_group) * plan.taps * plan.places_floats(), tap),
           .x = x + (b - begin) * x_block,
           .x_block = x_block,
           .blocks = static_cast<int>(next - b),
           .to = panel + tap * channels + plan.block(b).first - plan.block(begin).first,
           .to_step = step});
      b = next;
    }
  }
}

void sum_tiles(const DeformTiling& plan, const Sums& sums) {
  const Nchw16cKernels& kernels = nchw16c_kernels.get();
  alignas(64) std::array<float, DeformTiling::kChunkPixels * 32> kept;
  constexpr Index kChain = kSumChain / kChannelBlock;  // blocks
  Nchw16cTiles tiles;
  tiles.depth = ceil_div(sums.depth, kChannelBlock);
  tiles.last = static_cast<int>(sums.depth - (tiles.depth - 1) * kChannelBlock);
  tiles.in_block = sums.in_block;
  tiles.in_step = sums.in_step;
  tiles.out_block = sums.out_block;
  tiles.out_step = sums.out_step;
  const RowTiles rows(sums.pixels, kernels.pixels);
  for (Index lane = 0; lane < sums.lanes;) {
    const Index width = plan.width_at(lane, sums.lanes);
    tiles.w = sums.w + lane * tiles.depth * kChannelBlock;
    tiles.w_block = kChannelBlock * width;
    tiles.start = nullptr;
    tiles.starts = 0;
    if (sums.start != nullptr && lane < sums.starts) {
      tiles.start = sums.start + lane;
      tiles.starts = static_cast<int>(std::min(width, sums.starts - lane));
    }
    float* const out = sums.out + lane / kChannelBlock * sums.out_block + lane % kChannelBlock;
    for (Index d = 0; d < tiles.depth; d += kChain) {
      for (Index t = 0; t < rows.tiles; ++t) {
        const Index begin = rows.begin(t);
        const int height = rows.height(t);
        const Nchw16cTap tap{.in = 0, .w = 0, .first = 0, .end = static_cast<std::int16_t>(height)};
        float* const to = out + begin * sums.out_step;
        kernels.tile(tiles,
                     {.pixels = height,
                      .taps = 1,
                      .tap = &tap,
                      .in = sums.in + begin * sums.in_step,
                      .out = to,
                      .residual = sums.add ? to : nullptr},
                     {.block = d,
                      .depth = std::min(kChain, tiles.depth - d),
                      .tap = 0,
                      .end = 1,
                      .first = d == 0,
                      .last = d + kChain >= tiles.depth,
                      .ahead = 0},
                     kept.data() + begin * width, static_cast<int>(width));
      }
    }
    lane += width;
  }
}

// ---- forward ------------------------------------------------------------------------------------

namespace {

using Problem = DeformConv2dProblem;

Support supports(const Problem& z, Direction) {
  constexpr Index kMax = Index{1} << 24;  // f32 holds every integer up to it
  if (z.dtype != DType::f32) {
    return Support::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
  }
  if (z.h >= kMax || z.w >= kMax || z.h * z.w > (Index{1} << 31) - 1) {
    return Support::no(
        cat("expects an image of fewer than 2^24 rows and columns and 2^31 pixels, "
            "got ",
            z.h, "x", z.w));
  }
  const auto whole = [](Index parts, Index channels) {
    return parts == 1 || channels % kChannelBlock == 0;
  };
  if (z.layout != ActivationLayout::nchw &&
      !(whole(z.groups, z.c_per_group()) && whole(z.groups, z.k_per_group()) &&
        whole(z.offset_groups, z.c_per_offset_group()))) {
    return Support::no(cat("expects groups of a multiple of 16 channels in layout nchw16c, got ",
                           z.groups, " groups of ", z.c_per_group(), " and ", z.k_per_group(),
                           ", and ", z.offset_groups, " offset groups of ",
                           z.c_per_offset_group()));
  }
  return {};
}

Cost cost(const Problem& z, Direction direction) {
  const bool data = direction == Direction::backward_data;
  const double samples = number(z.n * z.taps() * z.p() * z.q());
  const double blocks = number(z.groups * ceil_div(z.c_per_group(), kChannelBlock));
  const double filled =
      number(z.k_per_group()) / number(round_up(z.k_per_group(), kChannelBlock)) *
      (data ? number(z.c_per_group()) / number(round_up(z.c_per_group(), kChannelBlock)) : 1);
  const double images = number((data ? 2 : 1) * z.x_shape().numel() + z.y_shape().numel());
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = z.nominal_flops() / filled,
          .transposed = z.layout == ActivationLayout::nchw ? images : 0,
          .transformed = samples * blocks * number(kChannelBlock),  // interpolated
          .listed = samples * number(z.offset_groups),
          .prepared = number(z.w_shape().numel()),
          .regions = direction == Direction::forward ? 1.0 : 2.0};
}

struct ForwardMemory {
  ForwardMemory(const DeformTiling& plan, void* memory) {
    Pieces pieces(memory);
    for (Index i = plan.in_nchw16c ? 0 : plan.forward_images(); i > 0; --i) {
      x.push_back(pieces.floats(plan.part * plan.plane * kChannelBlock));
      pieces.gap();
    }
    const Index places_floats =
        plan.most_offset_groups(plan.part) * plan.taps * plan.places_floats();
    Index row = 0;
    for (Index b = 0; b < plan.group_blocks(); b += plan.part) {
      row = std::max(row, plan.panel_row(b, plan.part_end(b)));
    }
    for (int t = 0; t < plan.threads; ++t) {
      threads.push_back({.places = pieces.floats(places_floats),
                         .panel = pieces.floats(plan.chunk * row),
                         .y = plan.in_nchw16c ? nullptr : pieces.floats(plan.chunk * plan.padded)});
      pieces.gap();
    }
    bytes = pieces.bytes();
  }
  struct Thread {
    float *places, *panel, *y;
  };
  std::vector<float*> x;  // for each current image: the channels of a part, in blocks
  std::vector<Thread> threads;
  std::size_t bytes = 0;
};

class Forward {
 public:
  Forward(const DeformTiling& plan, const DeformConv2dForwardArgs& args)
      : plan_(plan),
        z_(plan.z),
        places_(plan, args.offset, args.mask),
        memory_(plan, args.workspace),
        x_(static_cast<const float*>(args.x)),
        w_(static_cast<const float*>(args.prepared)),
        b_(static_cast<const float*>(args.b)),
        y_(static_cast<float*>(args.y)) {}

  void run() const {
    const Index chunks = ceil_div(plan_.pixels, plan_.chunk);
    if (plan_.in_nchw16c) {
      const Index blocks = ceil_div(z_.c, kChannelBlock);
      return parallel_chunks(z_.n * z_.groups * chunks, [&](Index task, int thread) {
        const Index n = task / chunks / z_.groups, g = task / chunks % z_.groups;
        const float* w = w_ + g * plan_.group_forward_weights();
        for (Index begin = 0; begin < plan_.group_blocks(); begin += plan_.part) {
          const Index block =
              n * blocks + (g * z_.c_per_group() + plan_.block(begin).first) / kChannelBlock;
          sum_chunk(n, g, begin, task % chunks, x_ + block * plan_.plane * kChannelBlock, w,
                    thread);
          w += plan_.forward_weights(begin, plan_.part_end(begin));
        }
      });
    }
    for_images(plan_, static_cast<Index>(memory_.x.size()), [&](const Images& images) {
      const float* w = w_;
      for (Index g = 0; g < z_.groups; ++g) {
        for (Index begin = 0; begin < plan_.group_blocks(); begin += plan_.part) {
          const Index end = plan_.part_end(begin);
          images.loop(end - begin, [&](Index n, std::size_t set, Index i, int) {
            copy_block(n, g, begin + i, memory_.x[set] + i * plan_.plane * kChannelBlock);
          });
          images.loop(chunks, [&](Index n, std::size_t set, Index chunk, int thread) {
            sum_chunk(n, g, begin, chunk, memory_.x[set], w, thread);
          });
          w += plan_.forward_weights(begin, end);
        }
      }
    });
  }

 private:
  void copy_block(Index n, Index g, Index block, float* to) const {
    const Block& from = plan_.block(block);
    const Index channel = n * z_.c + g * z_.c_per_group() + from.first;
    block_copy_kernels.get().to_block(x_ + channel * plan_.plane, plan_.plane, from.channels,
                                      plan_.plane, false, to);
  }

  // Adds the contribution of the input channels of one part, from block `begin` on, to one chunk of
  // output pixels.
  void sum_chunk(Index n, Index g, Index begin, Index chunk, const float* x, const float* w,
                 int thread) const {
    const ForwardMemory::Thread& own = memory_.threads[static_cast<std::size_t>(thread)];
    const Index end = plan_.part_end(begin), first = chunk * plan_.chunk;
    const Index count = std::min(plan_.chunk, plan_.pixels - first);
    for (Index o = 0; o < plan_.offset_groups(g, begin, end); ++o) {
      places_.compute(n, plan_.offset_group(g, begin) + o, first, count,
                      own.places + o * plan_.taps * plan_.places_floats());
    }
    fill_panel(plan_, g, begin, end, count, x, plan_.plane * kChannelBlock, own.places, own.panel);
    const Index kernel = g * plan_.kernels;
    Sums sums{.pixels = count,
              .depth = plan_.row(begin, end),
              .in = own.panel,
              .in_block = kChannelBlock,
              .in_step = plan_.panel_row(begin, end),
              .w = w,
              .lanes = plan_.padded,
              .out = own.y,
              .out_block = plan_.chunk * kChannelBlock};
    if (plan_.in_nchw16c) {
      const Index block = n * ceil_div(z_.k, kChannelBlock) + kernel / kChannelBlock;
      sums.out = y_ + (block * plan_.pixels + first) * kChannelBlock;
      sums.out_block = plan_.pixels * kChannelBlock;
      sums.add = begin > 0;
    }
    if (begin == 0 && b_ != nullptr) {
      sums.start = b_ + kernel;
      sums.starts = plan_.kernels;
    }
    sum_tiles(plan_, sums);
    for (Index k = 0; !plan_.in_nchw16c && k < plan_.kernels; k += kChannelBlock) {
      block_copy_kernels.get().to_planes(
          own.y + k * plan_.chunk, plan_.pixels,
          static_cast<int>(std::min(kChannelBlock, plan_.kernels - k)), count, begin > 0,
          y_ + (n * z_.k + kernel + k) * plan_.pixels + first);
    }
  }

  const DeformTiling& plan_;
  const Problem& z_;
  const Places places_;
  const ForwardMemory memory_;
  const float *const x_, *const w_, *const b_;
  float* const y_;
};

void forward(const DeformConv2dForwardArgs& args) {
  const DeformTiling plan(args.problem, Direction::forward);
  const Forward pass(plan, args);
  parallel_region([&] { pass.run(); });  // its loops are many and short
}

// Packs w as one array [row, width] for each tile of output channels of a part. A row is ordered by
// (r,s), then by channel.
void prepare_forward_weights(const PrepareArgs<Problem>& args) {
  const DeformTiling plan(args.problem, Direction::forward);
  const Problem& z = args.problem;
  const auto* const w = static_cast<const float*>(args.w);
  auto* const prepared = static_cast<float*>(args.prepared);
  const Index parts = plan.parts(), tiles = ceil_div(plan.padded, 2 * plan.lanes);
  parallel_for(z.groups * parts * tiles, 4, [&](Index job_begin, Index job_end) {
    for (Index job = job_begin; job < job_end; ++job) {
      const Index g = job / tiles / parts, lane = job % tiles * 2 * plan.lanes;
      const Index begin = job / tiles % parts * plan.part, end = plan.part_end(begin);
      const Index channels = plan.channels(begin, end), first = plan.block(begin).first;
      const Index rows = plan.row(begin, end), width = plan.width_at(lane, plan.padded);
      float* to =
          prepared + g * plan.group_forward_weights() + lane * round_up(rows, kChannelBlock);
      for (Index b = 0; b < begin; b += plan.part) to += plan.forward_weights(b, plan.part_end(b));
      std::fill_n(to, round_up(rows, kChannelBlock) * width, 0.0f);
      for (Index k = 0; k < std::min(width, plan.kernels - lane); ++k) {
        const Index kernel = g * plan.kernels + lane + k;
        const float* const from = w + (kernel * z.c_per_group() + first) * plan.taps;
        for (Index c = 0; c < channels; ++c) {
          for (Index t = 0; t < plan.taps; ++t) {
            to[(t * channels + c) * width + k] = from[c * plan.taps + t];
          }
        }
      }
    }
  });
}

std::size_t workspace_bytes(const Problem& z, Direction direction) {
  switch (direction) {
    case Direction::forward:
      return ForwardMemory(DeformTiling(z, direction), nullptr).bytes;
    case Direction::backward_data:
      return data_bytes(z);
    case Direction::backward_weight:
      return weight_bytes(z);
  }
  return 0;
}

const DeformConv2dAlgorithm kAlgorithm{
    .name = "fused",
    .device = DeviceType::cpu,
    .idea =
        "the samples of a few pixels stay in a panel in the cache, read by register tiles; no "
        "columns",
    .paper = "Dai et al. 2017, arXiv 1703.06211; Zhu et al. 2019, arXiv 1811.11168",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = [](const Problem& z, Direction direction) -> std::size_t {
      if (direction == Direction::backward_data) return data_prepared_bytes(z);
      const DeformTiling plan(z, direction);
      return sizeof(float) * static_cast<std::size_t>(z.groups * plan.group_forward_weights());
    },
    .prepare_weights =
        [](const PrepareArgs<Problem>& args) {
          args.direction == Direction::forward ? prepare_forward_weights(args)
                                               : prepare_data_weights(args);
        },
    .error_growth = 12,
    .takes_nchw16c_layout = true,
    .forward = forward,
    .backward_data = fused_backward_data,
    .backward_weight = fused_backward_weight,
};

}  // namespace
}  // namespace deform
}  // namespace convscope
CONVSCOPE_DEFORM_CONV2D_ALGORITHM(convscope::deform::kAlgorithm)
