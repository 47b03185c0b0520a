// SPDX-License-Identifier: Apache-2.0
// int8_chain.cpp: a chain of convolutions on int8 values: the tiling and the memory layout of each
// stage, the packing of its weights, and the loop over images.
#include "layers/conv2d/int8_chain.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "framework/ops/codes/codes_simd.h"
#include "framework/parallel.h"
#include "layers/conv2d/int8/int8_chain/cpu/int8_chain_stage.h"
#include "layers/conv2d/int8/shared/cpu/int8_pass.h"
#include "layers/dispatch/kernel_runs.h"

namespace convscope {

constinit IsaTable<Int8ChainKernels> int8_chain_kernels;

using namespace int8;

namespace {

constexpr Index kMaxChannels = 64;  // of y: more channels fill the lanes of the algorithms
constexpr Index kBehind = 64;       // bytes after an array that vectors may read
// Most bytes of x and of pooled y of an image: half of an L1 of 32 KiB. A chain of larger images
// gains nothing.
constexpr Index kMaxBytes = 16 * 1024;
// A thread takes whole images. With fewer images than threads and much work for each image, the
// other algorithms are faster, because they divide an image among threads.
constexpr double kMaxFlops = 5e6;

// A weight of the kernel, or none when c < 0.
struct Weight {
  Index c = -1, r = 0, s = 0;
};
using Quad = std::array<Weight, kQuad>;

// A quad is four int8 values, which one instruction multiplies in each lane. If the lanes hold
// neighbouring pixels (`columns` is true), a quad is taken either from four rows of one channel or
// from four channels of one pixel. The functions return how many quads one output then needs.
Index row_quads(const Conv2dProblem& z) { return z.c * ceil_div(z.r, kQuad) * z.s; }
Index channel_quads(const Conv2dProblem& z) { return ceil_div(z.c, kQuad) * z.r * z.s; }

}  // namespace

struct Int8Chain::Stage {
  Stage(const Conv2dProblem& of, bool may_take_columns);
  void find_planes();
  void read_by(Stage& next);
  void give_blocks();
  std::vector<Quad> quads() const;
  void pack(const std::int8_t* w, std::int8_t* to, std::int32_t* totals) const;

  std::size_t weight_bytes() const {
    const Index padded = z.columns ? z.k : round_up(z.k, kChannelBlock);
    const Index channel_weights = z.columns ? z.taps : z.r * z.row_quads;
    return ScratchArena::round_up(
        static_cast<std::size_t>(padded * channel_weights * kernels.weight_bytes + kBehind));
  }
  std::size_t factor_bytes() const { return OutputFactors::bytes(channels()); }
  std::size_t channel_bytes() const {
    return ScratchArena::round_up(static_cast<std::size_t>(channels()) * sizeof(std::int32_t));
  }
  std::size_t prepared_bytes() const {
    return factor_bytes() + 2 * channel_bytes() + weight_bytes();
  }
  Index channels() const { return round_up(z.k, kChannelBlock) + kChannelBlock; }
  std::size_t x_bytes() const {
    Index bytes = z.c * z.h * z.w;
    // the kernel reads whole vectors of the planes of quads, and rows whose weights are 0
    if (z.columns) {
      bytes = *std::ranges::max_element(plane_from) + (z.plane_rows - 1) * z.w + z.plane_pitch;
    }
    return ScratchArena::round_up(
        static_cast<std::size_t>(std::max(bytes, z.c * z.h * z.w) + kBehind));
  }
  std::size_t quad_bytes() const {
    return static_cast<std::size_t>(z.planes * z.plane_rows * z.plane_pitch * kQuad);
  }
  std::size_t line_bytes() const {
    return static_cast<std::size_t>(z.columns ? round_up(z.k, kChannelBlock) * z.line_pitch
                                              : z.q * kChannelBlock);
  }
  Index y_bytes() const { return ceil_div(z.k, kChannelBlock) * z.y_plane; }  // bytes of an image

  Conv2dProblem problem;
  Int8ChainKernels kernels;
  Int8Stage z;
  bool four_rows = true;  // a quad has four rows of one channel; else four channels
  std::vector<Index> plane_from, taps;
  std::size_t x_at = 0;     // offset in a thread's memory
  Index y_at = 0;           // offset of the first code inside the next stage's border
  std::int32_t border = 0;  // the code of 0 in x
  double step = 1;          // quantisation step of the images
  std::int32_t low = 0, high = 255;
  Int8Outputs outputs;
};

Int8Chain::Stage::Stage(const Conv2dProblem& of, bool may_take_columns)
    : problem(of), kernels(int8_chain_kernels.get()) {
  z.c = of.c;
  z.h = of.h + of.pad_top + of.pad_bottom;
  z.w = of.w + of.pad_left + of.pad_right;
  z.k = of.k;
  z.r = of.r;
  z.s = of.s;
  z.p = of.p() / 2;
  z.q = of.q() / 2;
  z.row_quads = ceil_div(z.s * z.c, kQuad);
  four_rows = row_quads(of) < channel_quads(of);
  // Number of instructions for two rows of sums.
  const Index columns =
      std::min(row_quads(of), channel_quads(of)) * z.k * 4 * ceil_div(z.q, kernels.lanes);
  const Index channels = z.r * z.row_quads * round_up(z.k, kChannelBlock) / kernels.lanes * 4 * z.q;
  z.columns = may_take_columns && columns < channels;
  if (z.columns) find_planes();
  z.line_pitch = z.columns ? round_up(z.q, kChannelBlock) : kChannelBlock;
}

void Int8Chain::Stage::find_planes() {
  const Index plane = z.h * z.w;
  const Index groups = ceil_div(z.r, kQuad);
  z.planes = four_rows ? z.c : ceil_div(z.c, kQuad);
  const Index last_row = four_rows ? kQuad * (groups - 1) : z.r - 1;
  z.plane_rows = 2 * z.p + last_row;
  z.plane_pitch = round_up(2 * round_up(z.q, kernels.lanes) + z.s - 1, kChannelBlock);
  for (Index at = 0; at < z.planes; ++at) {
    for (Index i = 0; i < kQuad; ++i) {
      // Channels after the last one have zero weights, so the kernel may read any byte for them.
      plane_from.push_back(four_rows ? at * plane + i * z.w
                                     : std::min(kQuad * at + i, z.c - 1) * plane);
    }
    const Index rows = four_rows ? groups : z.r;
    for (Index r = 0; r < rows; ++r) {
      for (Index s = 0; s < z.s; ++s) {
        const Index row = at * z.plane_rows + (four_rows ? kQuad * r : r);
        taps.push_back((row * z.plane_pitch + s) * kQuad);
      }
    }
  }
  z.plane_from = plane_from.data();
  z.tap = taps.data();
  z.taps = static_cast<Index>(taps.size());
}

// Returns the weights of a channel, in the order of the products.
std::vector<Quad> Int8Chain::Stage::quads() const {
  std::vector<Quad> out;
  if (!z.columns) {
    for (Index r = 0; r < z.r; ++r) {
      for (Index q = 0; q < z.row_quads; ++q) {
        Quad quad;
        for (Index i = 0; i < kQuad; ++i) {
          const Index byte = kQuad * q + i;
          if (byte < z.s * z.c) quad[static_cast<std::size_t>(i)] = {byte % z.c, r, byte / z.c};
        }
        out.push_back(quad);
      }
    }
    return out;
  }
  for (Index plane = 0; plane < z.planes; ++plane) {
    for (Index r = 0; r < (four_rows ? ceil_div(z.r, kQuad) : z.r); ++r) {
      for (Index s = 0; s < z.s; ++s) {
        Quad quad;
        for (Index i = 0; i < kQuad; ++i) {
          const Index c = four_rows ? plane : kQuad * plane + i;
          const Index row = four_rows ? kQuad * r + i : r;
          if (c < z.c && row < z.r) quad[static_cast<std::size_t>(i)] = {c, row, s};
        }
        out.push_back(quad);
      }
    }
  }
  return out;
}

void Int8Chain::Stage::pack(const std::int8_t* w, std::int8_t* to, std::int32_t* totals) const {
  const std::vector<Quad> all = quads();
  const bool spread = kernels.weight_bytes == 8;
  const auto weight = [&](Index k, const Weight& at) -> std::int8_t {
    if (at.c < 0 || k >= z.k) return 0;
    const std::int8_t value = w[((k * z.c + at.c) * z.r + at.r) * z.s + at.s];
    totals[k] += value;
    return value;
  };
  // Layout [groups, quads, width, 4]. Without VNNI, weights are spread to 16 bits: one vector has
  // weights 0 and 2 of the quads of all `lanes` lanes, the next vector weights 1 and 3.
  const Index group = z.columns ? kernels.group : kernels.lanes;
  const Index padded = z.columns ? z.k : round_up(z.k, kChannelBlock);
  const Index lanes = z.columns ? 1 : kernels.lanes;
  for (Index first = 0; first < padded; first += group) {
    const Index width = std::min(group, padded - first);
    for (const Quad& quad : all) {
      for (Index k = 0; k < width; ++k) {
        for (std::size_t i = 0; i < kQuad; ++i) {
          const std::int8_t value = weight(first + k, quad[i]);
          if (!spread) {
            to[kQuad * k + static_cast<Index>(i)] = value;
            continue;
          }
          const Index vector = k / lanes, lane = k % lanes;
          const auto half = static_cast<Index>(i);
          const Index place = ((2 * vector + half % 2) * lanes + lane) * 2 + half / 2;
          const std::int16_t wide = value;
          std::memcpy(to + 2 * place, &wide, sizeof(wide));
        }
      }
      to += width * kernels.weight_bytes;
    }
  }
}

// Connects y of this stage to x of the next one.
void Int8Chain::Stage::read_by(Stage& next) {
  const Index top = next.problem.pad_top, left = next.problem.pad_left;
  z.y_form = next.z.columns ? Int8Stage::Form::planes : Int8Stage::Form::pixels;
  const Index pixel = next.z.columns ? 1 : z.k;
  z.y_row = next.z.w * pixel;
  z.y_plane = next.z.h * next.z.w;
  y_at = top * z.y_row + left * pixel;
}

void Int8Chain::Stage::give_blocks() {
  z.y_form = Int8Stage::Form::blocks;
  z.y_row = z.q * kChannelBlock;
  z.y_plane = z.p * z.y_row;
}

std::string Int8Chain::refusal(const Conv2dProblem& z, bool first) {
  if (!z.types || z.types->y != DType::u8 || z.types->x != (first ? DType::f32 : DType::u8)) {
    return cat("expects x of ", first ? "f32" : "u8", " and y of u8");
  }
  if (z.groups != 1 || z.stride_h != 1 || z.stride_w != 1 || z.dilation_h != 1 ||
      z.dilation_w != 1) {
    return "expects one group, stride 1 and dilation 1";
  }
  if (z.c >= kChannelBlock || z.k > kMaxChannels) {
    return cat("expects fewer than ", kChannelBlock, " channels of x and at most ", kMaxChannels,
               " of y, got ", z.c, " and ", z.k);
  }
  if (z.p() < 2 || z.q() < 2) return "expects a window of 2x2 pixels";
  const Index bytes =
      std::max((z.h + z.pad_top + z.pad_bottom) * (z.w + z.pad_left + z.pad_right) * z.c,
               z.k * (z.p() / 2) * (z.q() / 2));
  if (bytes > kMaxBytes) {
    return cat("expects images of at most ", kMaxBytes, " bytes, got ", bytes);
  }
  if (z.n < num_threads() && z.nominal_flops() > kMaxFlops * static_cast<double>(z.n)) {
    return cat("expects an image for each of ", num_threads(), " threads, got ", z.n);
  }
  return "";
}

Int8Chain::Int8Chain(const std::vector<Conv2dProblem>& problems) {
  bool columns = true;
  for (const Conv2dProblem& problem : problems) {
    stages_.push_back(std::make_unique<Stage>(problem, columns));
    Stage& stage = *stages_.back();
    columns = stage.z.columns;
    stage.x_at = own_bytes_;
    own_bytes_ += stage.x_bytes();
    quad_bytes_ = std::max(quad_bytes_, ScratchArena::round_up(stage.quad_bytes() + kBehind));
    line_bytes_ = std::max(line_bytes_, ScratchArena::round_up(stage.line_bytes() + kBehind));
  }
  own_bytes_ += quad_bytes_ + line_bytes_ * stages_.size();
  for (std::size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->read_by(*stages_[i + 1]);
  stages_.back()->give_blocks();
}

Int8Chain::~Int8Chain() = default;

std::size_t Int8Chain::prepared_bytes() const {
  std::size_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->prepared_bytes();
  return bytes;
}

std::size_t Int8Chain::workspace_bytes() const {
  return own_bytes_ * static_cast<std::size_t>(num_threads());
}

void Int8Chain::prepare(std::size_t i, const Conv2dForwardArgs& args, void* to) {
  auto* memory = static_cast<std::uint8_t*>(to);
  for (std::size_t before = 0; before < i; ++before) memory += stages_[before]->prepared_bytes();
  Stage& stage = *stages_[i];
  const Index channels = stage.channels();
  const OutputFactors factors(args, channels, channels, memory);
  memory += stage.factor_bytes();
  auto* const start = reinterpret_cast<std::int32_t*>(memory);
  memory += stage.channel_bytes();
  auto* const falls = reinterpret_cast<std::int32_t*>(memory);
  memory += stage.channel_bytes();
  auto* const weights = reinterpret_cast<std::int8_t*>(memory);
  std::memset(weights, 0, stage.weight_bytes());
  std::fill_n(start, channels, 0);
  stage.pack(static_cast<const std::int8_t*>(args.w), weights, start);
  stage.outputs = factors.outputs();
  stage.border = offset_of(args);
  bool any_falls = false;
  for (Index k = 0; k < channels; ++k) {
    start[k] *= -stage.border;
    falls[k] = stage.outputs.exact_scale[k] < 0 ? -1 : 0;
    any_falls = any_falls || falls[k] != 0;
  }
  if (i == 0) {
    stage.step = args.views.x.scale(0);
    stage.low = args.views.x.low;
    stage.high = args.views.x.high;
  }
  stage.z.weights = weights;
  stage.z.start = start;
  stage.z.falls = any_falls ? falls : nullptr;
  stage.z.outputs = &stage.outputs;
}

namespace {

// Rounds an f32 image to bytes, inside the border of `x`.
void round_image(const Int8Stage& z, const Conv2dProblem& problem, RoundedRow row,
                 const float* image, std::uint8_t* x) {
  const CodeKernels codes = code_kernels.get();
  const bool bordered = z.h != problem.h || z.w != problem.w;
  if (z.columns && !bordered) {
    row.pixels = z.c * z.h * z.w;
    row.from = image;
    row.to = x;
    return codes.round(row);
  }
  const Index pixel = z.columns ? 1 : z.c;
  row.channels = static_cast<int>(pixel);
  row.pixel = pixel;
  row.pixels = problem.w;
  row.plane = problem.h * problem.w;
  for (Index plane = 0; plane < z.c / pixel; ++plane) {
    for (Index h = 0; h < problem.h; ++h) {
      row.from = image + (plane * problem.h + h) * problem.w;
      row.to = x + ((plane * z.h + h + problem.pad_top) * z.w + problem.pad_left) * pixel;
      codes.round(row);
    }
  }
}

}  // namespace

void Int8Chain::run_image(const float* image, std::uint8_t* own, std::uint8_t* y) const {
  const Stage& first = *stages_.front();
  std::uint8_t* const quads = own + own_bytes_ - quad_bytes_ - stages_.size() * line_bytes_;
  round_image(first.z, first.problem,
              {.step = first.step, .low = first.low, .high = first.high, .offset = first.border},
              image, own);
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = *stages_[i];
    const bool last = i + 1 == stages_.size();
    stage.kernels.run(stage.z, own + stage.x_at, quads, quads + quad_bytes_ + i * line_bytes_,
                      last ? y : own + stages_[i + 1]->x_at + stage.y_at);
  }
}

void Int8Chain::run(const float* images, std::uint8_t* y, void* workspace) const {
  double flops = 0;
  for (const auto& stage : stages_) {
    kernel_ran(kInt8Chain, name_of(Direction::forward), stage->problem);
    flops += stage->problem.nominal_flops() / kQuad;
  }
  const ShortLoops here(flops);
  const Conv2dProblem& first = stages_.front()->problem;
  const int threads = num_threads();
  const Index at_once = ceil_div(first.n, threads == 1 ? 1 : kQuad * threads);
  parallel_chunks(ceil_div(first.n, at_once), [&](Index chunk, int thread) {
    std::uint8_t* const own =
        static_cast<std::uint8_t*>(workspace) + static_cast<std::size_t>(thread) * own_bytes_;
    for (const auto& stage : stages_) {  // borders; images do not overwrite them
      std::memset(own + stage->x_at, stage->border, stage->x_bytes());
    }
    std::memset(own + own_bytes_ - stages_.size() * line_bytes_, 0, stages_.size() * line_bytes_);
    const Index end = std::min(first.n, (chunk + 1) * at_once);
    for (Index n = chunk * at_once; n < end; ++n) {
      run_image(images + n * first.c * first.h * first.w, own, y + n * stages_.back()->y_bytes());
    }
  });
}

}  // namespace convscope
