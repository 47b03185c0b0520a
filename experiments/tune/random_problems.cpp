// SPDX-License-Identifier: Apache-2.0
// random_problems.cpp: the designed sets of problems of `convscope tune`.
#include "experiments/tune/random_problems.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "framework/check.h"
#include "layers/dispatch/half_problem.h"

namespace convscope {
namespace {

using Index = std::int64_t;

// Limits of one call: tens of milliseconds of one core, a millisecond of a GPU.
struct Limits {
  double flops, bytes;  // of the tensors
  Index most_images;
};
Limits limits_of(DeviceType device) {
  return device == DeviceType::cpu ? Limits{6e8, 6e7, 32} : Limits{6e10, 6e8, 128};
}

// The functions of <random> may give other numbers with another standard library. These do not.
class Draw {
 public:
  explicit Draw(std::mt19937_64& random) : random_(random) {}
  double unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  bool chance(double p) { return unit() < p; }
  Index of(std::initializer_list<Index> values) {
    return values.begin()[static_cast<std::size_t>(unit() * static_cast<double>(values.size()))];
  }
  // Uniform in the logarithm, ends included.
  Index between(Index low, Index high) {
    const double span = std::log(static_cast<double>(high + 1) / static_cast<double>(low));
    return std::clamp(static_cast<Index>(static_cast<double>(low) * std::exp(span * unit())), low,
                      high);
  }
  // Mostly a multiple of 8 or 16, as channels of networks are.
  Index channels(Index low, Index high) {
    const Index any = between(low, high);
    const Index step = chance(0.15) || any < 8 ? 1 : any < 24 ? 8 : 16;
    return std::max<Index>(1, (any + step / 2) / step * step);
  }

 private:
  std::mt19937_64& random_;
};

void pad_as_large(Conv2dProblem& z) {
  z.pad_top = z.pad_bottom = z.dilation_h * (z.r - 1) / 2;
  z.pad_left = z.pad_right = z.dilation_w * (z.s - 1) / 2;
}

enum class Kind { dense, point, depth, group, large, line, dilated, stem, small, linear };

Conv2dProblem drawn(Draw& draw, Kind kind) {
  Conv2dProblem z;
  z.h = draw.between(6, 112);
  z.w = draw.chance(0.8) ? z.h : draw.between(6, 112);
  z.c = draw.channels(8, 640);
  z.k = draw.channels(8, 640);
  z.r = z.s = 3;
  z.stride_h = z.stride_w = draw.chance(0.25) ? 2 : 1;
  switch (kind) {
    case Kind::dense:
      break;
    case Kind::point:
      z.r = z.s = 1;
      z.c = draw.channels(8, 1536);
      z.k = draw.channels(8, 1536);
      if (draw.chance(0.5)) z.stride_h = z.stride_w = 1;
      break;
    case Kind::depth:
      z.r = z.s = draw.of({3, 3, 3, 5, 5, 7, 7, 9});
      z.k = z.groups = z.c;
      if (draw.chance(0.1)) z.k = 2 * z.c;
      break;
    case Kind::group:
      z.groups = draw.of({2, 4, 8, 16, 32});
      z.c = z.groups * draw.of({2, 4, 8, 16, 32});
      z.k = draw.chance(0.8) ? z.c : z.groups * draw.of({4, 8, 16, 32});
      break;
    case Kind::large:
      z.r = z.s = draw.of({5, 5, 7, 7, 9, 11, 13});
      z.c = draw.channels(1, 192);
      z.k = draw.channels(4, 192);
      break;
    case Kind::line: {
      const Index length = draw.of({3, 5, 7, 9});
      const bool tall = draw.chance(0.5);
      z.r = tall ? length : 1;
      z.s = tall ? 1 : length;
      break;
    }
    case Kind::dilated:
      z.dilation_h = z.dilation_w = draw.of({2, 3, 4, 6});
      z.stride_h = z.stride_w = 1;
      break;
    case Kind::stem:
      z.c = draw.of({1, 3, 3, 3, 4});
      z.h = z.w = draw.between(24, 224);
      z.k = draw.channels(8, 96);
      z.r = z.s = draw.of({3, 5, 7});
      break;
    case Kind::small:  // first networks: LeNet on digits and their like
      z.c = draw.between(1, 24);
      z.k = draw.between(2, 48);
      z.h = z.w = draw.between(8, 36);
      z.r = z.s = draw.of({3, 5, 5});
      z.stride_h = z.stride_w = draw.chance(0.15) ? 2 : 1;
      break;
    case Kind::linear:
      z.r = z.s = z.h = z.w = 1;
      z.stride_h = z.stride_w = 1;
      z.c = draw.between(16, 4096);
      z.k = draw.between(10, 4096);
      break;
  }
  if (draw.chance(0.85)) pad_as_large(z);
  return z;
}

bool fits(const Conv2dProblem& z, const Limits& limits) {
  if (z.h + z.pad_top + z.pad_bottom <= z.dilation_h * (z.r - 1) ||
      z.w + z.pad_left + z.pad_right <= z.dilation_w * (z.s - 1)) {
    return false;
  }
  return z.nominal_flops() <= limits.flops && z.nominal_bytes() <= limits.bytes;
}

Conv2dProblem drawn_within_limits(Draw& draw, Kind kind, const Limits& limits) {
  for (;;) {
    Conv2dProblem z = drawn(draw, kind);
    if (!fits(z, limits)) continue;
    const bool many = kind == Kind::small || kind == Kind::linear;
    const Index n = draw.chance(0.3) ? 1 : draw.between(1, many ? 256 : limits.most_images);
    for (z.n = n; z.n > 1 && !fits(z, limits);) z.n /= 2;
    return z;
  }
}

// Integers, as quantised networks have them.
void set_integers(Conv2dProblem& z) {
  OperandTypes types;
  CONVSCOPE_CHECK(OperandTypes::parse(z.c <= 4 ? "f32:i8:i32:u8" : "u8:i8:i32:u8", types), "tune",
                  "expected integer types");
  z.set_integer_types(types);
}

// Returns false where the problem has no block-sparse form.
bool prune(Draw& draw, Conv2dProblem& z) {
  const double kept = static_cast<double>(draw.of({5, 10, 20, 30})) / 100;
  if (z.groups != 1 || z.k % 16 != 0) return false;
  const Index rows = draw.of({4, 16});
  z.weight_format = {.kind = WeightFormat::Kind::block_sparse,
                     .block_rows = rows,
                     .block_columns = 1,
                     .blocks = 0};
  const Index all = z.k / rows * z.c_per_group() * z.r * z.s;
  z.weight_format.blocks = std::max<Index>(1, static_cast<Index>(kept * static_cast<double>(all)));
  return true;
}

void set_form_of_cpu(Draw& draw, Conv2dProblem& z, bool is_stem) {
  const double form = draw.unit();
  if (form < 0.14) {
    set_integers(z);
    if (draw.chance(0.7)) return;
  } else if (form < 0.55) {
    const bool first_layer = is_stem || z.c <= 4 || draw.chance(0.12);
    z.layout = first_layer ? kNchwToNchw16c : ImageLayouts(ActivationLayout::nchw16c);
  }
  if ((form < 0.14 || form > 0.9) && prune(draw, z) && draw.chance(0.5)) {
    z.layout = ActivationLayout::nchw16c;
  }
}

template <class Problem>
void set_precision_of_gpu(Draw& draw, Problem& z) {
  const double precision = draw.unit();
  if (precision < 0.3) return;
  if (precision < 0.5) {
    z.math = MathMode::tf32;
  } else {
    z.dtype = draw.chance(0.7) ? DType::bf16 : DType::f16;
  }
}

void set_form_of_gpu(Draw& draw, Conv2dProblem& z) {
  const double form = draw.unit();
  if (form < 0.08) {
    set_integers(z);
    if (draw.chance(0.5)) z.layout = ActivationLayout::nchw16c;
    return;
  }
  if (form < 0.16 && prune(draw, z)) {
    if (draw.chance(0.3)) z.math = MathMode::tf32;
    return;
  }
  set_precision_of_gpu(draw, z);
  const bool tensor_cores = z.dtype != DType::f32 || z.math == MathMode::tf32;
  if (draw.chance(tensor_cores ? 0.75 : 0.15)) z = with_nhwc(z);  // as in a compiled step
}

}  // namespace

Conv2dProblem random_conv2d(std::mt19937_64& random, DeviceType device) {
  Draw draw(random);
  constexpr std::pair<Kind, double> kShares[] = {
      {Kind::dense, 0.30}, {Kind::point, 0.20}, {Kind::depth, 0.15},   {Kind::group, 0.06},
      {Kind::large, 0.08}, {Kind::line, 0.04},  {Kind::dilated, 0.03}, {Kind::stem, 0.03},
      {Kind::small, 0.07}, {Kind::linear, 0.04}};
  Kind kind = Kind::dense;
  double at = draw.unit();
  for (const auto& [one, share] : kShares) {
    if (at >= 0) kind = one;
    at -= share;
  }
  Conv2dProblem z = drawn_within_limits(draw, kind, limits_of(device));
  device == DeviceType::cpu ? set_form_of_cpu(draw, z, kind == Kind::stem)
                            : set_form_of_gpu(draw, z);
  return z;
}

DeformConv2dProblem random_deform_conv2d(std::mt19937_64& random, DeviceType device) {
  Draw draw(random);
  const Limits limits = limits_of(device);
  for (;;) {
    Conv2dProblem z = drawn(draw, draw.chance(0.8) ? Kind::dense : Kind::dilated);
    z.h = z.w = draw.between(7, 64);
    if (draw.chance(0.2)) z.groups = draw.of({2, 4});
    const Index offset_groups = draw.of({1, 1, 2, 4});
    if (z.c % z.groups != 0 || z.k % z.groups != 0 || z.c % offset_groups != 0) continue;
    if (!fits(z, limits)) continue;
    for (z.n = draw.between(1, limits.most_images / 4); z.n > 1 && !fits(z, limits);) z.n /= 2;
    if (device == DeviceType::cuda) {
      set_precision_of_gpu(draw, z);
    } else if (draw.chance(0.5))
      z.layout = ActivationLayout::nchw16c;
    return {z, offset_groups, draw.chance(0.7)};
  }
}

std::string random_cloud(std::mt19937_64& random, DeviceType device) {
  Draw draw(random);
  const bool flat = draw.chance(0.2);
  const char* const kinds[] = {"shell", "room", "lidar", "random"};
  const std::string cloud = flat ? "ink" : kinds[draw.of({0, 1, 2, 3})];
  const Index c = draw.channels(4, 192), k = draw.channels(4, 192);
  const double flops = limits_of(device).flops / 2;
  const auto most = static_cast<Index>(flops / (2.0 * 12 * static_cast<double>(c * k)));
  const Index sites =
      std::clamp<Index>(draw.between(1000, device == DeviceType::cpu ? 100000 : 400000), 500,
                        std::max<Index>(500, most));
  std::string out = cat("cloud=", cloud, ",sites=", sites, ",seed=", draw.between(1, 1000));
  if (cloud == "random") out += cat(",density=0.0", draw.of({2, 5, 9}));
  if (device == DeviceType::cuda) {
    const char* const kPrecisions[] = {"", "", ",precision=tf32", ",dtype=f16", ",dtype=bf16"};
    out += kPrecisions[draw.of({0, 1, 2, 3, 4})];
  }
  const double kind = draw.unit();
  if (kind < 0.7) return out + cat(",kernel=", flat ? "3x3" : "3x3x3", ",c=", c, ",k=", k);
  out += kind < 0.85 ? "" : ",kind=inverse";
  return out + cat(",kernel=", flat ? "2x2" : "2x2x2", ",stride=2,c=", c, ",k=", k);
}

}  // namespace convscope
