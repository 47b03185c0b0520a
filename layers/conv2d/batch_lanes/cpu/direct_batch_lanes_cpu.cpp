// SPDX-License-Identifier: Apache-2.0
// direct_batch_lanes_cpu.cpp: direct convolution with one sample in each vector lane. So every lane
// is used even if a layer has too few channels, and images too narrow, to fill a vector.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of w[k,c,r,s] x[n, c, p stride_h - pad_top + r,
//            q stride_w - pad_left + s], x = 0 outside
// Textbook   for k, p, q: y[.,k,p,q] = b[k]
//              for c, r, s: y[.,k,p,q] += w[k,c,r,s] * x[.,c,p*stride+r-pad,q*stride+s-pad]
//            where [.] is a vector of L samples: each step is one FMA of a vector and a scalar
// Method     Schedule of direct: the loop nest of direct_lesson_cpu.cpp, with the loop over n in
//            the vector lanes. 16 images (4 or 8 for a small batch) are transposed from [N,C,H,W]
//            to [C,H,W,L], convolved by the functions of batch_lanes.h, and transposed back. The
//            weights are packed before the call (prepare_weights). Threads share the lane groups of
//            L images. In backward_weight the lane groups are divided into slices, and a slice is
//            the work of one thread. The accumulators of dw keep their lanes separate until one
//            reduction over lanes and slices. batch_lanes_simd.cpp describes the tiles.
// Shapes     x [N,C,H,W], w [K,C,R,S], y [N,K,P,Q], f32 row-major, any alignment; f32 accumulators
// Supports   f32, groups 1, dilation 1; any kernel, stride and padding; x and y of 16 images of at
//            most 2^22 elements each; backward_weight up to 2^16 weights
// Cost       FLOPs = 2 N K P Q C R S, N rounded up to whole groups; bytes = the tensors twice (x
//            and y are transposed); workspace = x and y of one group for each thread
//            (backward_weight: 16 K C R S for each slice); compute-bound from about 50 taps C R S
//            on
// Numerics   one rounding per FMA, in the order of (c, r, s); backward_weight sums the pixels of
//            one lane of a slice, then the slices in order, then the lanes; all sums are in chains
//            (framework/simd/sum_chain.h). Same bits on each run and for any number of threads;
//            exact on integers below 2^24
// Backward   dx assigned; dw assigned or added to
// Choices    kSlices: 16 slices of backward_weight. kMaxFloats, kMaxWeights: above these sizes a
//            thread's buffers exceed the caches, and algorithms with channels in the lanes are
//            efficient. kCacheFloats: 1 MiB of L2 for x and y of a lane group
// Source     A. Krizhevsky 2012, cuda-convnet, for a layout with N innermost ("CHWN"); the tiles
//            are ours
// Read next  direct_cpu.cpp, with pixels or channels in the lanes; batch_lanes.h, the fused
//            training step
#include <algorithm>

#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/batch_lanes/cpu/batch_lanes.h"
#include "layers/conv2d/epilogue.h"
#include "layers/conv2d/shared/tiles.h"
#include "layers/dispatch/limits/workspace_limit.h"

namespace convscope {
namespace {

using Index = std::int64_t;

constexpr Index kSlices = 16;
constexpr Index kMaxFloats = Index{1} << 22;
constexpr Index kMaxWeights = Index{1} << 16;
constexpr Index kCacheFloats = Index{1} << 18;

Index padded(Index floats) { return (floats + 15) / 16 * 16; }

// Sizes of one call; all buffers are 64-byte aligned.
struct LaneTiling {
  LaneTiling(const Conv2dProblem& problem, Direction which)
      : direction(which),
        n(problem.n),
        z(problem, problem.stride_w == 1 ? lanes_for_batch(problem.n) : 16, false, false),
        groups(lane_groups(n, z.lanes)),
        slices(std::clamp<Index>(groups, 1, kSlices)) {}

  Index x_size() const { return z.x_floats / z.lanes; }  // of one sample
  Index y_size() const { return z.y_floats / z.lanes; }
  Index samples(Index group) const { return std::min<Index>(z.lanes, n - group * z.lanes); }

  // Returns the floats of the accumulators of all slices.
  Index shared_floats() const {
    return direction == Direction::backward_weight ? slices * padded(z.sums_floats) : 0;
  }
  Index scratch_floats() const {
    return direction == Direction::forward         ? z.forward_scratch_floats
           : direction == Direction::backward_data ? z.backward_data_scratch_floats
                                                   : z.backward_weight_scratch_floats;
  }
  Index thread_floats() const {
    return padded(z.x_floats) + padded(z.y_floats) + padded(scratch_floats());
  }

  Direction direction;
  Index n;
  LanesConv z;
  Index groups, slices;
};

// Scratch memory of one thread.
struct Room {
  float *x, *y, *scratch;
  Room(const LaneTiling& plan, float* memory, int thread)
      : x(memory + plan.shared_floats() + thread * plan.thread_floats()),
        y(x + padded(plan.z.x_floats)),
        scratch(y + padded(plan.z.y_floats)) {}
};

// ---- weights -----------------------------------------------------------------------------------

std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction) {
  return static_cast<std::size_t>(padded(LaneTiling(problem, direction).z.weight_floats)) *
         sizeof(float);
}

// Packs w in the order in which the tiles read it (batch_lanes.h).
void prepare_weights(const Conv2dPrepareArgs& args) {
  const LaneTiling plan(args.problem, args.direction);
  const LanesKernels& kernels = lanes_kernels.get();
  const auto pack =
      args.direction == Direction::forward ? kernels.pack_weights : kernels.pack_weights_backward;
  pack(plan.z, static_cast<const float*>(args.w), static_cast<float*>(args.prepared));
}

// ---- the three directions ----------------------------------------------------------------------

void forward(const Conv2dForwardArgs& args) {
  const LaneTiling plan(args.problem, Direction::forward);
  const LanesKernels& kernels = lanes_kernels.get();
  const FusedEpilogue epilogue(args);
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const b = static_cast<const float*>(args.b);
  auto* const y = static_cast<float*>(args.y);
  auto* const memory = static_cast<float*>(args.workspace);
  const auto* const packed = static_cast<const float*>(args.prepared);
  parallel_chunks(plan.groups, [&](Index group, int thread) {
    const Room room(plan, memory, thread);
    const Index first = group * plan.z.lanes;
    samples_to_lanes(x + first * plan.x_size(), plan.samples(group), plan.x_size(), plan.z.lanes,
                     room.x);
    kernels.forward(plan.z, room.x, packed, b, room.y, nullptr, room.scratch);
    float* const to = y + first * plan.y_size();
    lanes_to_samples(room.y, plan.samples(group), plan.y_size(), plan.z.lanes, to);
    epilogue.finish(to, 1, plan.samples(group) * plan.y_size(), 0);
  });
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const LaneTiling plan(args.problem, Direction::backward_data);
  const LanesKernels& kernels = lanes_kernels.get();
  const auto* const dy = static_cast<const float*>(args.dy);
  auto* const dx = static_cast<float*>(args.dx);
  auto* const memory = static_cast<float*>(args.workspace);
  const auto* const packed = static_cast<const float*>(args.prepared);
  parallel_chunks(plan.groups, [&](Index group, int thread) {
    const Room room(plan, memory, thread);
    const Index first = group * plan.z.lanes;
    samples_to_lanes(dy + first * plan.y_size(), plan.samples(group), plan.y_size(), plan.z.lanes,
                     room.y);
    kernels.backward_data(plan.z, room.y, packed, room.x, room.scratch);
    lanes_to_samples(room.x, plan.samples(group), plan.x_size(), plan.z.lanes,
                     dx + first * plan.x_size());
  });
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const LaneTiling plan(args.problem, Direction::backward_weight);
  const LanesConv& z = plan.z;
  const LanesKernels& kernels = lanes_kernels.get();
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const dy = static_cast<const float*>(args.dy);
  auto* const memory = static_cast<float*>(args.workspace);
  const Index step = padded(z.sums_floats);
  parallel_chunks(plan.slices, [&](Index slice, int thread) {
    const Room room(plan, memory, thread);
    float* const sums = memory + slice * step;
    std::fill_n(sums, z.sums_floats, 0.0f);
    const Index end = (slice + 1) * plan.groups / plan.slices;
    for (Index group = slice * plan.groups / plan.slices; group < end; ++group) {
      const Index first = group * z.lanes;
      samples_to_lanes(x + first * plan.x_size(), plan.samples(group), plan.x_size(), z.lanes,
                       room.x);
      samples_to_lanes(dy + first * plan.y_size(), plan.samples(group), plan.y_size(), z.lanes,
                       room.y);
      kernels.backward_weight(z, room.x, room.y, sums, room.scratch);
    }
  });
  parallel_chunks(z.k, [&](Index k, int) {
    kernels.reduce(z, memory, step, plan.slices, k, k + 1, static_cast<float*>(args.dw), nullptr,
                   args.accumulate);
  });
}

// ---- algorithm
// --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& problem, Direction direction) {
  if (problem.dtype != DType::f32) {
    return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(problem.dtype)));
  }
  if (problem.groups != 1) {
    return Conv2dSupport::no(cat("expects groups 1, got ", problem.groups));
  }
  if (problem.dilation_h != 1 || problem.dilation_w != 1) {
    return Conv2dSupport::no(
        cat("expects dilation 1, got ", problem.dilation_h, "x", problem.dilation_w));
  }
  const Index x = problem.c * problem.h * problem.w;
  const Index y = problem.k * problem.p() * problem.q();
  if (16 * std::max(x, y) > kMaxFloats) {
    return Conv2dSupport::no(cat("expects images of at most ", kMaxFloats / 16,
                                 " elements because a thread keeps 16 of them, got x of ", x,
                                 " and y of ", y));
  }
  const Index weights = problem.k * problem.c * problem.r * problem.s;
  if (direction == Direction::backward_weight && weights > kMaxWeights) {
    return Conv2dSupport::no(cat("expects at most ", kMaxWeights,
                                 " weights because the sum of each keeps 16 lanes, got ", weights));
  }
  return {};
}

// With a stride, dx is a convolution of dy with zeros between its pixels: each pixel of dx costs
// all taps. If a vector holds several pixels, the last vector of a row is not full.
Conv2dCost cost(const Conv2dProblem& problem, Direction direction) {
  const LaneTiling plan(problem, direction);
  const bool data = direction == Direction::backward_data;
  const bool inserts_zeros = data && (problem.stride_h > 1 || problem.stride_w > 1);
  const Index rows = inserts_zeros ? problem.h : problem.p();
  const Index columns = inserts_zeros ? problem.w : problem.q();
  const Index lanes = std::max(4, tile_kernels.get().lanes);
  const double vectors = number(plan.groups * rows * ceil_div(columns * plan.z.lanes, lanes));
  const double weights = number(plan.z.weight_floats);
  Conv2dCost out{
      .flops = 2 * number(plan.groups * plan.z.lanes) * weights * number(rows * columns),
      .bytes = problem.nominal_bytes(),
      .issued = 2 * vectors * number(lanes) * weights,
      .tiles = vectors * number(data ? problem.c : problem.k),
      .transposed = number(plan.groups * plan.z.lanes) * number(plan.x_size() + plan.y_size()),
      .cached = number(plan.groups) * weights * sizeof(float),
      .prepared = weights,
      .chunks = number(plan.groups),
      .schedule = plan.z.x_floats + plan.z.y_floats <= kCacheFloats
                      ? plan.z.lanes < 16 ? "few_lanes" : ""
                      : "beyond_l2"};
  if (direction == Direction::backward_weight) {
    out.prepared = out.cached = 0;
    out.transformed = number(plan.slices * plan.z.weight_floats * plan.z.lanes);
    out.regions = 2;
    out.chunks = number(plan.slices);
  }
  return out;
}

std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction) {
  const LaneTiling plan(problem, direction);
  return static_cast<std::size_t>(plan.shared_floats() + num_threads() * plan.thread_floats()) *
         sizeof(float);
}

const Conv2dAlgorithm kAlgorithm{
    .name = "direct_batch_lanes",
    .device = DeviceType::cpu,
    .idea = "one sample in each vector lane: few channels and narrow images fill all lanes",
    .paper = "Krizhevsky 2012: cuda-convnet, the layout with the batch innermost",
    .supports = with_workspace_limit<supports, workspace_bytes>,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 8,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
