// SPDX-License-Identifier: Apache-2.0
// deform_backward_weight.cpp: dw of fused deformable convolution: panels of samples times dy.
//
// Formula    dw[k,c,r,s] = sum over n, p, q of dy[n,k,p,q] mask sample(x[n,c], v, u)
// Method     A task computes dw for one or two blocks of input channels and all output channels. If
//            there are too few blocks for all threads, it computes only some of the output
//            channels. The task walks over all images in chunks of pixels.
//            For each chunk it writes a panel of samples, copies dy into blocks, and multiplies
//            both by register tiles of 8 or more channels x two vectors of kernels. The
//            accumulators of the task [R S channels, K] stay in L2 and are written to dw at the
//            end.
// Numerics   up to 160 chunks are added to one set of accumulators. The result is added to a set of
//            totals, and the accumulators start again. So errors do not grow with the number of
//            pixels. The additions to an element of dw have a fixed order, so bits are the same on
//            each run and with any number of threads.
// Read next  deform_fused_cpu.cpp; layers/conv2d/shared/nchw16c_weight_tiles_simd.cpp, the tiles
#include "layers/deform_conv2d/fused/cpu/deform_backward.h"
#include "layers/deform_conv2d/fused/cpu/deform_pass.h"
#include "layers/dispatch/layout/block_copies_simd.h"

namespace convscope::deform {
namespace {

using Problem = DeformConv2dProblem;

struct WeightMemory {
  WeightMemory(const DeformTiling& plan, void* memory) {
    Pieces pieces(memory);
    Index row = 0, most_sums = 0;
    for (Index b = 0; b < plan.group_blocks(); b += plan.weight_part) {
      const Index end = std::min(b + plan.weight_part, plan.group_blocks());
      row = std::max(row, plan.panel_row(b, end));
      most_sums = std::max(most_sums, plan.row(b, end));
    }
    const Index kernels = ceil_div(plan.padded / kChannelBlock, plan.kernel_parts) * kChannelBlock;
    const Index chunks = plan.z.n * ceil_div(plan.pixels, plan.chunk);
    for (int t = 0; t < plan.threads; ++t) {
      Thread own{};
      if (!plan.in_nchw16c) {
        own.x = pieces.floats(plan.weight_part * plan.plane * kChannelBlock);
        own.dy = pieces.floats(kernels * plan.chunk);
      }
      own.places = pieces.floats(plan.most_offset_groups(plan.weight_part) * plan.taps *
                                 plan.places_floats());
      own.panel = pieces.floats(plan.chunk * row);
      own.sums = pieces.floats(most_sums * kernels);
      if (chunks > kSumChain) own.totals = pieces.floats(most_sums * kernels);
      threads.push_back(own);
      pieces.gap();
    }
    bytes = pieces.bytes();
  }
  struct Thread {
    float *x, *dy, *places, *panel, *sums, *totals;
  };
  std::vector<Thread> threads;
  std::size_t bytes = 0;
};

class BackwardWeight {
 public:
  BackwardWeight(const DeformTiling& plan, const DeformConv2dBackwardWeightArgs& args)
      : plan_(plan),
        z_(plan.z),
        places_(plan, args.offset, args.mask),
        memory_(plan, args.workspace),
        x_(static_cast<const float*>(args.x)),
        dy_(static_cast<const float*>(args.dy)),
        dw_(static_cast<float*>(args.dw)),
        accumulate_(args.accumulate) {}

  void run() const {
    const Index parts = ceil_div(plan_.group_blocks(), plan_.weight_part);
    parallel_chunks(z_.groups * parts * plan_.kernel_parts, [&](Index task, int thread) {
      const Index g = task / plan_.kernel_parts / parts;
      const Index begin = task / plan_.kernel_parts % parts * plan_.weight_part;
      const Index blocks = plan_.padded / kChannelBlock, part = task % plan_.kernel_parts;
      const Task one{.g = g,
                     .begin = begin,
                     .end = std::min(begin + plan_.weight_part, plan_.group_blocks()),
                     .kernel = part * blocks / plan_.kernel_parts * kChannelBlock,
                     .kernel_end = (part + 1) * blocks / plan_.kernel_parts * kChannelBlock};
      if (one.kernel < one.kernel_end) {
        run_task(one, memory_.threads[static_cast<std::size_t>(thread)]);
      }
    });
  }

 private:
  using Thread = WeightMemory::Thread;
  struct Task {
    Index g, begin, end;       // blocks
    Index kernel, kernel_end;  // of the group, whole blocks
    Index width() const { return kernel_end - kernel; }
  };

  void run_task(const Task& task, const Thread& own) const {
    const Index floats = plan_.row(task.begin, task.end) * task.width();
    bool start = true, first_total = true;
    Index added = 0;
    const auto take_total = [&] {
      for (Index i = 0; i < floats; ++i) {
        own.totals[i] = first_total ? own.sums[i] : own.totals[i] + own.sums[i];
      }
      first_total = false;
      start = true;
      added = 0;
    };
    for (Index n = 0; n < z_.n; ++n) {
      const float* x = own.x;
      if (plan_.in_nchw16c) {
        const Index channel = task.g * z_.c_per_group() + plan_.block(task.begin).first;
        x = x_ + (n * ceil_div(z_.c, kChannelBlock) + channel / kChannelBlock) * plan_.plane *
                     kChannelBlock;
      } else {
        copy_x(task, n, own);
      }
      for (Index first = 0; first < plan_.pixels; first += plan_.chunk) {
        add_chunk(task, n, first, x, own, start);
        start = false;
        if (++added == kSumChain && own.totals != nullptr) take_total();
      }
    }
    if (own.totals != nullptr && added > 0) take_total();
    write(task, own.totals != nullptr ? own.totals : own.sums);
  }

  void copy_x(const Task& task, Index n, const Thread& own) const {
    for (Index b = task.begin; b < task.end; ++b) {
      const Block& block = plan_.block(b);
      const Index channel = n * z_.c + task.g * z_.c_per_group() + block.first;
      block_copy_kernels.get().to_block(x_ + channel * plan_.plane, plan_.plane, block.channels,
                                        plan_.plane, false,
                                        own.x + (b - task.begin) * plan_.plane * kChannelBlock);
    }
  }

  void add_chunk(const Task& task, Index n, Index first, const float* x, const Thread& own,
                 bool start) const {
    const Index count = std::min(plan_.chunk, plan_.pixels - first);
    const Index group = plan_.offset_group(task.g, task.begin);
    for (Index o = 0; o < plan_.offset_groups(task.g, task.begin, task.end); ++o) {
      places_.compute(n, group + o, first, count,
                      own.places + o * plan_.taps * plan_.places_floats());
    }
    fill_panel(plan_, task.g, task.begin, task.end, count, x, plan_.plane * kChannelBlock,
               own.places, own.panel);
    const Index kernel = task.g * plan_.kernels + task.kernel;
    const float* dy = own.dy;
    Index dy_block = plan_.chunk * kChannelBlock;
    if (plan_.in_nchw16c) {
      const Index block = n * ceil_div(z_.k, kChannelBlock) + kernel / kChannelBlock;
      dy = dy_ + (block * plan_.pixels + first) * kChannelBlock;
      dy_block = plan_.pixels * kChannelBlock;
    } else {
      for (Index k = task.kernel; k < std::min(task.kernel_end, plan_.kernels);
           k += kChannelBlock) {
        block_copy_kernels.get().to_block(
            dy_ + (n * z_.k + task.g * plan_.kernels + k) * plan_.pixels + first, plan_.pixels,
            static_cast<int>(std::min(kChannelBlock, plan_.kernels - k)), count, false,
            own.dy + (k - task.kernel) * plan_.chunk);
      }
    }
    const Index rows = plan_.row(task.begin, task.end);
    const Index step = plan_.panel_row(task.begin, task.end);
    for (Index lane = 0; lane < task.width();) {
      const Index width = plan_.width_at(lane, task.width());
      for (Index row = 0; row < rows; row += kChannelBlock) {
        Nchw16cWeightTile tile;
        tile.channels = static_cast<int>(std::min(kChannelBlock, rows - row));
        tile.rows = 1;
        tile.columns = count;
        tile.in = own.panel + row;
        tile.in_step = step;
        tile.beside = dy + lane / kChannelBlock * dy_block + lane % kChannelBlock;
        tile.beside_step = kChannelBlock;
        tile.beside_block = dy_block;
        tile.next = tile.beside;
        tile.next_step = 0;
        tile.sums = own.sums + row * task.width() + lane;
        tile.sums_row = task.width();
        tile.start = start;
        nchw16c_kernels.get().weight_tile(tile, static_cast<int>(width));
      }
      lane += width;
    }
  }

  void write(const Task& task, const float* sums) const {
    const Index channels = plan_.channels(task.begin, task.end);
    const Index first = plan_.block(task.begin).first;
    for (Index k = task.kernel; k < std::min(task.kernel_end, plan_.kernels); ++k) {
      const Index kernel = task.g * plan_.kernels + k;
      float* const to = dw_ + (kernel * z_.c_per_group() + first) * plan_.taps;
      for (Index t = 0; t < plan_.taps; ++t) {
        for (Index c = 0; c < channels; ++c) {
          const float sum = sums[(t * channels + c) * task.width() + k - task.kernel];
          float& at = to[c * plan_.taps + t];
          at = accumulate_ ? at + sum : sum;
        }
      }
    }
  }

  const DeformTiling& plan_;
  const Problem& z_;
  const Places places_;
  const WeightMemory memory_;
  const float *const x_, *const dy_;
  float* const dw_;
  const bool accumulate_;
};

}  // namespace

std::size_t weight_bytes(const Problem& z) {
  return WeightMemory(DeformTiling(z, Direction::backward_weight), nullptr).bytes;
}

void fused_backward_weight(const DeformConv2dBackwardWeightArgs& args) {
  const DeformTiling plan(args.problem, Direction::backward_weight);
  BackwardWeight(plan, args).run();
}

}  // namespace convscope::deform
