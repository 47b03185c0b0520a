// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_cuda.cu: convolution in groups of few channels on the tensor cores, for images in
// NHWC. Small groups share a matrix product, and all taps read one patch in shared memory.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of w[k,c,r,s] x[n, c, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w], k and c of one group, x = 0
//            outside
// Textbook   for each bundle of groups, for each tile of positions:      # a block of threads
//              patch = the pixels of x that the tile reads, once
//              for 16 positions, for two (tap, octet of channels):       # a warp
//                sums [16 x 8] += patch [16 x 16] weights [16 x 8]
// Method     Schedule of implicit_gemm: the loop nest of implicit_gemm_lesson_cuda.cu. It adds
//            products of whole bundles of groups on the tensor cores.
//            grouped_gemm_plan.h defines bundle, slice, tile, patch and slot, and chooses their
//            sizes. prepare_weights stores w in the order in which lanes hold it, with zeros
//            between the groups of a bundle.
//              forward, backward_data    are in grouped_gemm_gather.cuh
//              backward_weight           is in grouped_gemm_weight.cuh
// Shapes     x, dx [N,1,H,W,Cp], y, dy [N,1,P,Q,Kp] fp16, bf16 or f32 (tf32), 16-byte aligned; w,
//            dw [K,C/G,R,S], b [K] f32; sums in f32
// Supports   layout NHWC with fp16, bf16, or f32 with precision tf32; weights in f32; bundles of at
//            most 64 channels on either side; kernels of at most 49 taps; strides of dx up to 4
// Cost       FLOPs = 2 N K P Q (C/G) R S, times the groups of a bundle; bytes = those of x, y and
//            w; workspace = the partial sums of dw. The algorithm is memory-bound
// Numerics   operands are rounded to nearest to fp16, bf16 or tf32; the tensor cores accumulate in
//            f32 and round towards zero. Same bits on each run; exact on integers up to 2^8 (bf16)
//            or 2^11 (f16, tf32) while sums stay below 2^24. An infinity or NaN in one group makes
//            the other groups of the bundle NaN, because their zero weights multiply it
// Backward   dx assigned; dw assigned or added to
// Choices    described in grouped_gemm_plan.h and the two kernel files
// Source     Xie et al. 2017: Aggregated Residual Transformations for Deep Neural Networks, arXiv
//            1611.05431 (the layers); own work (the kernels)
// Read next  ../../implicit_gemm/implicit_gemm_lesson_cuda.cu, a simpler kernel
#include <algorithm>
#include <memory>
#include <type_traits>

#include "framework/precision.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/grouped_gemm/cuda/grouped_gemm_gather.cuh"
#include "layers/conv2d/grouped_gemm/cuda/grouped_gemm_weight.cuh"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope {
namespace {

namespace grouped = grouped_gemm;
using grouped::GatherPlan;
using grouped::kOctet;
using grouped::GroupedGemmParams;
using grouped::GroupedWeightTiling;

int narrow(std::int64_t size) { return static_cast<int>(size); }

grouped::Machine machine() {
  const CudaDeviceFacts& facts = cuda_device_facts();
  return {.multiprocessors = facts.multiprocessors, .shared_bytes = facts.shared_bytes_per_block};
}

struct Plans {
  GatherPlan gather;
  GroupedWeightTiling weight;
};
std::shared_ptr<const Plans> plans_of(const Conv2dProblem& z, Direction direction) {
  static KeptPlans<Plans> kept;
  return kept.get(z, direction, [&] {
    Plans made{};
    if (direction == Direction::backward_weight) {
      made.weight = grouped::plan_weight(z, machine());
    } else {
      made.gather = grouped::plan_gather(z, direction, machine());
    }
    return made;
  });
}

// ---- weights -----------------------------------------------------------------------------------

struct Packing {
  int groups, bundled;
  // taps of the kernel; those that no phase reads count too (images shorter than the stride)
  int kernel;
  bool transposed;   // true: w is read as [in][out] of a group, for backward_data
  int products;  // MMAs of all octets of y together
  FastDivisor by_in_channels, by_out_channels;  // channels of a group on each side
  FastDivisor by_bundle_in, by_bundle_out, by_steps;
};

// Packs words [bundle, octet of y][product][lane][2]; one warp packs one product. A lane l holds
// two words of column l/4 of operand B, which have the reduction indices 2 (l%4) + {0, 1, 8, 9}, or
// l%4 + {0, 4} in f32.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const __grid_constant__ GroupedGemmParams z, const __grid_constant__ Packing to,
                const float* w, uint2* words) {
  constexpr int kSlots = grouped::kStepSlots<T>;
  let_next_kernel_start();
  const int product = static_cast<int>(blockIdx.x * (kThreads / 32) + threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int octet = to.by_steps.divide(product);
  const int step = product - octet * to.by_steps.d;
  int phase = 0;
  while (phase + 1 < z.phases() && step >= z.step_begin[phase + 1]) ++phase;
  const int bundle = to.by_bundle_out.divide(octet);
  const int out = (octet - bundle * to.by_bundle_out.d) * kOctet + lane / 4;  // in the bundle
  const int group = to.by_out_channels.divide(out);
  const int o = out - group * to.by_out_channels.d;
  const int global_group = bundle * to.bundled + group;
  const int ins = to.by_in_channels.d, outs = to.by_out_channels.d;
  const float* const group_weights =
      w + (static_cast<std::int64_t>(global_group) * ins * outs + (to.transposed ? o : o * ins)) *
              to.kernel;
  const int apart = (to.transposed ? outs : 1) * to.kernel;  // distance of two input channels
  const auto weight = [&](int depth) {
    const int slot = (step - z.step_begin[phase]) * kSlots + depth / kOctet;
    const int phase_tap = to.by_bundle_in.divide(slot);
    const int tap = z.tap_begin[phase] + phase_tap;
    const int in = (slot - phase_tap * to.by_bundle_in.d) * kOctet + depth % kOctet;
    const bool meets = tap < z.tap_begin[phase + 1] && global_group < to.groups &&
                       to.by_in_channels.divide(in) == group;
    return meets ? group_weights[(in - group * ins) * apart + z.tap_kernel[tap]] : 0.0f;
  };
  wait_for_previous_kernel();
  if (product >= to.products) return;
  uint2& at = words[product * 32 + lane];
  if constexpr (sizeof(T) == 4) {
    at = make_uint2(__float_as_uint(to_tf32(weight(lane % 4))),
                    __float_as_uint(to_tf32(weight(lane % 4 + 4))));
  } else {
    const int depth = lane % 4 * 2;
    at = make_uint2(pair_from_floats<T>(weight(depth), weight(depth + 1)),
                    pair_from_floats<T>(weight(depth + 8), weight(depth + 9)));
  }
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  const GroupedGemmParams s = grouped::sizes_of(z, direction);
  return static_cast<std::size_t>(s.bundles) * static_cast<std::size_t>(s.bundle_out * s.steps()) *
         256;
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const GroupedGemmParams s = grouped::sizes_of(z, args.direction);
  const bool back = args.direction == Direction::backward_data;
  const int products = s.bundles * s.bundle_out * s.steps();
  const Packing to{.groups = narrow(z.groups),
                   .bundled = grouped::bundled(z),
                   .kernel = narrow(z.r * z.s),
                   .transposed = back,
                   .products = products,
                   .by_in_channels = FastDivisor(narrow(back ? z.k_per_group() : z.c_per_group())),
                   .by_out_channels = FastDivisor(narrow(back ? z.c_per_group() : z.k_per_group())),
                   .by_bundle_in = FastDivisor(s.bundle_in),
                   .by_bundle_out = FastDivisor(s.bundle_out),
                   .by_steps = FastDivisor(s.steps())};
  with_stored_type(z.dtype, [&](auto zero) {
    launch(
        pack_kernel<decltype(zero)>,
        {.grid = dim3(static_cast<unsigned>(ceil_div(products, static_cast<int>(kThreads) / 32))),
         .block = dim3(kThreads),
         .overlaps_previous = true},
        s, to, static_cast<const float*>(args.w), static_cast<uint2*>(args.prepared));
  });
}

// ---- the three directions ----------------------------------------------------------------------

template <int kValue>
using Number = std::integral_constant<int, kValue>;

// Calls body(octets) with the value as a template argument.
template <class Body>
void with_octets(int octets, const Body& body) {
  switch (octets) {
    case 1:
      return body(Number<1>{});
    case 2:
      return body(Number<2>{});
    case 3:
      return body(Number<3>{});
    default:
      return body(Number<4>{});
  }
}
// Calls body(octets, bundles) with the pair as compile-time constants. The compiled pairs are 1
// octet with 2 or 4 bundles, 2 octets with 1 or 2 bundles, 3 or 4 octets with 1 bundle.
template <class Body>
void with_octets_of_bundles(int octets, int bundles, const Body& body) {
  with_octets(octets, [&](auto known) {
    if constexpr (known() == 1) {
      return bundles == 4 ? body(known, Number<4>{}) : body(known, Number<2>{});
    } else if constexpr (known() == 2) {
      return bundles == 2 ? body(known, Number<2>{}) : body(known, Number<1>{});
    } else {
      return body(known, Number<1>{});
    }
  });
}

void run_gather(const Conv2dProblem& z, Direction direction, const void* x, const void* weights,
                const void* bias, const Conv2dEpilogue& epilogue, void* y) {
  const auto plans = plans_of(z, direction);
  const GatherPlan& plan = plans->gather;
  const GroupedGemmParams& s = plan.sizes;
  with_stored_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    const grouped::Finish<T> end{static_cast<const float*>(bias),
                                 static_cast<const T*>(epilogue.residual), epilogue.relu};
    with_octets_of_bundles(plan.at_once, plan.bundles_at_once, [&](auto octets, auto bundles) {
      launch(grouped::gather_kernel<T, octets(), bundles()>,
             {.grid = dim3(static_cast<unsigned>(s.tiles() * s.slices)),
              .block = dim3(grouped::kWarps * 32),
              .shared_bytes = static_cast<std::size_t>(plan.shared_bytes),
              .overlaps_previous = true},
             s, static_cast<const uint4*>(x), static_cast<const uint4*>(weights), end,
             static_cast<T*>(y));
    });
  });
}

void forward(const Conv2dForwardArgs& args) {
  run_gather(args.problem, Direction::forward, args.x, args.prepared, args.b, args.epilogue,
             args.y);
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  run_gather(args.problem, Direction::backward_data, args.dy, args.prepared, nullptr, {}, args.dx);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const auto plans = plans_of(z, Direction::backward_weight);
  const GroupedWeightTiling& plan = plans->weight;
  const GroupedGemmParams& s = plan.sizes;
  auto* const part = static_cast<float4*>(args.workspace);
  auto* const dw = static_cast<float*>(args.dw);
  const int quads = narrow(plan.quads());
  // A quad is four accumulators of dw. The more parts each quad has, the more threads add them up.
  int rows_log2 = 0;
  while ((1 << rows_log2) < grouped::kMaxSumRows && 4 << rows_log2 <= plan.parts) ++rows_log2;
  const grouped::WeightSums sums{.groups = narrow(z.groups),
                                 .in_channels = narrow(z.c_per_group()),
                                 .bundled = grouped::bundled(z),
                                 .bundle_in = s.bundle_in,
                                 .taps = s.tap_begin[1],
                                 .parts = plan.parts,
                                 .quads = quads,
                                 .rows_log2 = rows_log2,
                                 .accumulate = args.accumulate,
                                 .by_in_channels = FastDivisor(narrow(z.c_per_group())),
                                 .by_out_channels = FastDivisor(narrow(z.k_per_group())),
                                 .by_bundle_in = FastDivisor(s.bundle_in),
                                 .by_bundle_out = FastDivisor(s.bundle_out),
                                 .by_pairs = FastDivisor(plan.pairs)};
  with_stored_type(z.dtype, [&](auto zero) {
    with_octets(plan.at_once, [&](auto octets) {
      launch(grouped::weight_kernel<decltype(zero), octets()>,
             {.grid = dim3(static_cast<unsigned>(plan.parts * s.slices)),
              .block = dim3(static_cast<unsigned>(plan.threads())),
              .shared_bytes = static_cast<std::size_t>(plan.shared_bytes),
              .overlaps_previous = true},
             plan, static_cast<const uint4*>(args.x), static_cast<const uint4*>(args.dy), part);
    });
  });
  launch(grouped::sum_parts_kernel,
         {.grid = dim3(static_cast<unsigned>(ceil_div(quads, grouped::kSumQuads >> rows_log2))),
          .block = dim3(grouped::kSumQuads),
          .overlaps_previous = true},
         sums, part, dw);
}

// ---- algorithm ---------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  const bool tf32 = z.dtype == DType::f32 && z.math == MathMode::tf32;
  const OperandTypes types{.x = z.dtype, .w = DType::f32, .accumulator = DType::f32, .y = z.dtype};
  if (z.layout != ActivationLayout::nhwc || (!is_half(z.dtype) && !tf32) ||
      z.operand_types() != types) {
    return Conv2dSupport::no(
        cat("expects fp16/bf16, or f32 with precision tf32, in NHWC and f32 weights, got ",
            z.operand_types().text(), " with layout ", name_of(z.layout)));
  }
  if (cuda_device_facts().major < 8) {
    return Conv2dSupport::no(cat("expects a GPU of compute capability 8.0 or higher, for its ",
                                 "tensor cores and asynchronous copies, got ",
                                 cuda_device_facts().major, ".", cuda_device_facts().minor));
  }
  if (z.groups == 1 || std::min(z.c_per_group(), z.k_per_group()) < 2) {
    return Conv2dSupport::no(
        cat("expects several groups of at least 2 channels, because it is made for them, got ",
            z.groups, " groups of ", z.c_per_group(), " in and ", z.k_per_group(), " out"));
  }
  const std::int64_t most = grouped::kMaxOctets * kOctet / grouped::bundled(z);
  if (std::max(z.c_per_group(), z.k_per_group()) > most) {
    return Conv2dSupport::no(cat("expects groups of at most ", most,
                                 " channels here, because the sums of a bundle of groups stay in ",
                                 "registers, got ", z.c_per_group(), " in and ", z.k_per_group(),
                                 " out"));
  }
  if (z.r * z.s > grouped::kMaxTaps) {
    return Conv2dSupport::no(cat("expects a kernel of at most ", grouped::kMaxTaps,
                                 " taps, because each is a parameter of the launch, got ", z.r, "x",
                                 z.s));
  }
  if (direction == Direction::backward_data &&
      std::max(z.stride_h, z.stride_w) > grouped::kMaxStride) {
    return Conv2dSupport::no(cat("expects strides of at most ", grouped::kMaxStride,
                                 " in backward_data, one phase each, got ", z.stride_h, "x",
                                 z.stride_w));
  }
  const std::int64_t side = std::max({z.h, z.w, z.p(), z.q()}) + z.pad_top + z.pad_left;
  const std::int64_t pixels = z.n * std::max(z.h * z.w, z.p() * z.q());
  if (side > 32000 || pixels * ceil_div(std::max(z.c, z.k), std::int64_t{kOctet}) > 0x7fff0000 ||
      std::max(z.dilation_h * z.r, z.dilation_w * z.s) > 32000) {
    return Conv2dSupport::no(
        "expects images of at most 32000x32000 with padding and fewer than 2^31 octets of channels "
        "in a tensor, because places in them have 32 bits");
  }
  Conv2dProblem with_images = z;
  with_images.n = std::max(z.n, std::int64_t{1});
  const auto plans = plans_of(with_images, direction);
  const bool fits =
      direction == Direction::backward_weight ? plans->weight.exists() : plans->gather.exists();
  if (!fits) {
    return Conv2dSupport::no(
        cat("expects weights and a patch of the image that fit into shared "
            "memory together, got a kernel of ",
            z.r, "x", z.s, " over ", z.c_per_group(), " channels"));
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const auto plans = plans_of(z, direction);
  if (direction == Direction::backward_weight) return plans->weight.cost;
  Cost cost = plans->gather.cost;
  cost.prepared_bytes = 4 * number(z.w_shape().numel()) +
                        static_cast<double>(prepared_bytes(z, direction));
  cost.prepare_launches = 1;
  return cost;
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::backward_weight ? plans_of(z, direction)->weight.part_bytes() : 0;
}

const Conv2dAlgorithm kAlgorithm{
    .name = "grouped_gemm",
    .device = DeviceType::cuda,
    .idea = "small groups side by side in one product of the tensor cores, all taps from one patch",
    .paper =
        "Xie et al. 2017: Aggregated Residual Transformations for Deep Neural Networks, arXiv "
        "1611.05431",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 32,  // the same bound as implicit_gemm_tma; the tensor cores round towards zero
    .one_chain = true,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_nhwc = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
