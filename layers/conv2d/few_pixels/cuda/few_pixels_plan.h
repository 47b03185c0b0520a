// SPDX-License-Identifier: Apache-2.0
// few_pixels_plan.h: the tiling of few_pixels, which splits dw into blocks of threads, and the
// pixels into pieces that fit into shared memory.
//
// A `tile` is the output of a block: rows (output channels) times octets (8 input channels) times
// all taps. A `step` is 8 pixels, the K dimension of an instruction with 16 rows and 8 columns. A
// `fragment` is one octet of one tap, the 8 columns of that instruction. A `piece` is whole images
// or some lines of y of one image. A `plane` is a channel of x in a piece, with the zeros around
// the image. Each line of a plane is sorted by column modulo the stride. So neighbours in y read
// neighbours in a line, and a tap is one offset for all pixels. Lines and columns that no tap reads
// are not stored. A `share` is the steps that one warp computes.
// Read next  few_pixels_weight.cuh, the kernel
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "framework/int_math.h"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/cost/choose.h"

namespace convscope::few_pixels {

inline constexpr int kRows = 16, kOctet = 8, kStepPixels = 8;  // of a product
inline constexpr int kMaxTaps = 49;
inline constexpr int kMaxPixels = 4096;  // of y, in all images
inline constexpr int kMaxWarps = 8, kMaxOctets = 16, kMaxStages = 3;
// The steps of one accumulator. Tensor cores round towards zero, so longer sums are split into
// chains.
inline constexpr int kChainSteps = 14;

// A template instance of the kernel: a warp's rows (in units of 16) and fragments; whether
// registers hold a second set of accumulators, which shortens chains; how many blocks fit into an
// SM's registers.
struct Instance {
  int row_tiles, fragments;
  bool cuts;
  int resident;
};
inline constexpr Instance kInstances[] = {
    {1, 4, true, 2}, {2, 4, true, 2}, {1, 9, true, 2}, {2, 9, false, 1}};

struct Machine {
  int multiprocessors = 132;
  int shared_bytes = 227 * 1024;  // limit of a block; nearly all of an SM's memory
};

// Arguments of the kernel. Memory sizes are counted in words of 4 bytes.
struct FewPixelsParams {
  int images = 1, in_channels = 1, height = 1, width = 1;  // x
  int out_channels = 1, out_height = 1, out_width = 1;     // y
  int stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
  int taps = 1;
  int extent_h = 1, extent_w = 1;  // of a kernel with its dilation
  int step_h = 1, step_w = 1;      // stored lines and columns for one pixel of y
  int columns = 1;                 // columns of a line with equal remainder modulo step_w
  int line = 1;                    // words of a stored line
  // Pieces.
  int piece_images = 1, piece_lines = 1;  // lines of y
  int pieces_of_image = 1, pieces = 1;    // the first is 1 if a piece has several images
  int plane_words = 1;                    // words of one image
  int plane_pitch = 4, dy_pitch = 4;      // words from a channel to the next
  // Tile.
  int rows = kRows, row_groups = 1;   // a warp computes rows / row_groups rows
  int octets = 1, column_groups = 1;  // a warp has its instance's fragments
  int shares = 1;
  int row_blocks = 1;  // tiles in the direction of rows
  // Shared memory holds the stages, each [dy][x], then the table of offsets. At the end, results
  // overwrite the stages.
  int stages = 1, stage_words = 0, x_at = 0;
  int sum_pitch = 4;
  int tap_at[kMaxTaps] = {};
  FastDivisor by_line, by_columns, by_step_h, by_plane_words;
  FastDivisor by_out_width, by_piece_lines, by_pieces_of_image, by_image_pixels;
  FastDivisor by_row_blocks;

  int fragments() const { return octets * taps; }
  int warps() const { return row_groups * column_groups * shares; }
  constexpr int piece_pixels() const { return piece_images * piece_lines * out_width; }
  int piece_steps() const { return ceil_div(piece_pixels(), kStepPixels); }
  constexpr int plane_piece() const { return piece_images * plane_words; }
  int channel_blocks() const { return ceil_div(in_channels, octets * kOctet); }
  int blocks() const { return row_blocks * channel_blocks(); }
  int all_steps() const {
    const int lines_left = out_height - (pieces_of_image - 1) * piece_lines;
    const int images_left = images - (pieces - 1) * piece_images;
    if (pieces_of_image == 1) {
      return (pieces - 1) * piece_steps() +
             ceil_div(images_left * out_height * out_width, kStepPixels);
    }
    return images *
           ((pieces_of_image - 1) * piece_steps() + ceil_div(lines_left * out_width, kStepPixels));
  }
  constexpr int table_at() const { return stages * stage_words; }
  // Returns the line of x that is stored as line `stored_line` of a plane, for a piece that begins
  // with line 0 of y; negative in the padding. column_of() does the same for columns.
  constexpr int row_of(int stored_line) const {
    const int window = by_step_h.divide(stored_line);
    return window * stride_h + stored_line - window * step_h - pad_top;
  }
  constexpr int column_of(int place) const {
    const int remainder = by_columns.divide(place);
    return (place - remainder * columns) * stride_w + remainder - pad_left;
  }
  // Returns the offset in a plane of tap (0, 0) of pixel `pixel` of a piece.
  constexpr int window_at(int pixel) const {
    const int line_index =
        by_out_width.divide(pixel);  // line, counted over the images of the piece
    const int image = by_piece_lines.divide(line_index);
    return image * plane_words + (line_index - image * piece_lines) * step_h * line + pixel -
           line_index * out_width;
  }
  // Tells whether the words of a plane have the same order as in x.
  bool planes_as_in_memory() const {
    return step_w == 1 && stride_w == 1 && stride_h == 1 && pad_left == 0 && pad_top == 0 &&
           line == width;
  }
};

struct FewPixelsTiling {
  FewPixelsParams sizes = {};
  Instance instance = {};
  int shared_bytes = 0;
  Cost cost = {};

  bool exists() const { return shared_bytes > 0; }
};

// Returns the smallest pitch >= `words` for which 8 rows of 4 neighbouring words use all banks.
constexpr int pitch_of(int words) { return round_up(std::max(words - 4, 0), 8) + 4; }

inline FewPixelsParams sizes_of(const Conv2dProblem& z) {
  const auto narrow = [](std::int64_t size) { return static_cast<int>(size); };
  FewPixelsParams s;
  s.images = narrow(z.n), s.in_channels = narrow(z.c);
  s.height = narrow(z.h), s.width = narrow(z.w);
  s.out_channels = narrow(z.k), s.out_height = narrow(z.p()), s.out_width = narrow(z.q());
  s.stride_h = narrow(z.stride_h), s.stride_w = narrow(z.stride_w);
  s.pad_top = narrow(z.pad_top), s.pad_left = narrow(z.pad_left);
  s.taps = narrow(z.r * z.s);
  s.extent_h = narrow((z.r - 1) * z.dilation_h + 1);
  s.extent_w = narrow((z.s - 1) * z.dilation_w + 1);
  s.step_h = std::min(s.stride_h, s.extent_h);
  s.step_w = std::min(s.stride_w, s.extent_w);
  s.columns = s.out_width + (s.extent_w - 1) / s.step_w;
  s.line = s.columns * s.step_w;
  for (int tap = 0; tap < s.taps; ++tap) {
    const int down = tap / narrow(z.s) * narrow(z.dilation_h);
    const int right = tap % narrow(z.s) * narrow(z.dilation_w);
    s.tap_at[tap] = down * s.line + right % s.step_w * s.columns + right / s.step_w;
  }
  s.by_line = FastDivisor(s.line), s.by_columns = FastDivisor(s.columns);
  s.by_step_h = FastDivisor(s.step_h), s.by_out_width = FastDivisor(s.out_width);
  return s;
}

inline FewPixelsParams with_piece(FewPixelsParams s, int images, int lines) {
  s.piece_images = images, s.piece_lines = lines;
  s.pieces_of_image = ceil_div(s.out_height, lines);
  s.pieces = s.pieces_of_image > 1 ? s.pieces_of_image * s.images : ceil_div(s.images, images);
  s.plane_words = ((lines - 1) * s.step_h + s.extent_h) * s.line;
  s.plane_pitch = pitch_of(images * s.plane_words);
  s.dy_pitch = pitch_of(s.piece_steps() * kStepPixels);
  s.by_plane_words = FastDivisor(s.plane_words);
  s.by_piece_lines = FastDivisor(lines);
  s.by_pieces_of_image = FastDivisor(s.pieces_of_image);
  s.by_image_pixels = FastDivisor(lines * s.out_width);
  return s;
}

// Calls visit(images, lines) for each size of a piece: whole images, from all to one, then some
// lines of one image.
template <class Visit>
void visit_pieces(const FewPixelsParams& s, const Visit& visit) {
  int last = 0;
  for (int parts = 1; parts <= s.images; parts += 1 + parts / 3) {
    const int images = ceil_div(s.images, parts);
    if (images != last) visit(images, s.out_height);
    last = images;
  }
  if (last != 1) visit(1, s.out_height);
  last = s.out_height;
  for (int parts = 2; parts <= s.out_height; parts += 1 + parts / 3) {
    const int lines = ceil_div(s.out_height, parts);
    if (lines != last) visit(1, lines);
    last = lines;
  }
  if (last != 1) visit(1, 1);
}

// Returns a pitch for storing results in the order of dw, for which two lanes seldom use the same
// bank.
inline int sum_pitch_of(int columns, int taps) {
  int best = 0, least = 33;
  for (int pitch = round_up(columns, 4), more = 0; more < 8; ++more, pitch += 4) {
    int met[32] = {}, most = 0;
    for (int lane = 0; lane < 32; ++lane) {
      most = std::max(most, ++met[(lane / 4 * pitch + lane % 4 * 2 * taps) % 32]);
    }
    if (most < least) least = most, best = pitch;
  }
  return best;
}

// How the threads of a block share the copying of rows. A row takes `positions` copies. `lanes`
// threads copy a row, and `groups` rows are copied at a time. A thread copies the same positions of
// all its rows, so it computes each position once.
struct Spread {
  int positions = 1, lanes = 1, groups = 1;
  FastDivisor by_lanes;
};
inline constexpr int kPositionWork = 5;  // divisions and compares of a position, in copies
inline Spread spread(int positions, int rows, int threads) {
  Spread best;
  best.positions = positions;
  int least = std::numeric_limits<int>::max();
  for (int lanes = 8; lanes <= threads; lanes += 8) {
    const int groups = threads / lanes;
    const int work = ceil_div(positions, lanes) * (ceil_div(rows, groups) + kPositionWork);
    if (work >= least) continue;
    least = work;
    best.lanes = lanes, best.groups = groups;
  }
  best.by_lanes = FastDivisor(best.lanes);
  return best;
}

// ---- cost --------------------------------------------------------------------------------------

// Returns the number of copies that a thread makes for one piece.
inline double copies_of(int positions, int rows, int threads) {
  const Spread by = spread(positions, rows, threads);
  return ceil_div(by.positions, by.lanes) * (ceil_div(rows, by.groups) + kPositionWork);
}

// Returns the kernel: rows (in units of 16) and fragments of a warp.
inline const char* schedule_of(const Instance& instance) {
  constexpr const char* kNames[2][2] = {{"1x4", "1x9"}, {"2x4", "2x9"}};
  return kNames[instance.row_tiles - 1][instance.fragments == 4 ? 0 : 1];
}

// Counts the work of all blocks. A block reads all pieces of its rows of dy and its planes of x.
inline Cost counts_of(const FewPixelsTiling& plan, const Conv2dProblem& problem,
                      const Machine& machine) {
  const FewPixelsParams& s = plan.sizes;
  const int warps = s.warps(), threads = warps * 32;
  const bool x_by_four = s.planes_as_in_memory() && s.plane_words % 4 == 0;
  const bool dy_by_four = s.out_height * s.out_width % 4 == 0 && s.piece_pixels() % 4 == 0;
  const double copies =
      s.pieces * (copies_of(s.plane_piece() / (x_by_four ? 4 : 1), s.octets * kOctet, threads) +
                  copies_of(s.piece_steps() * kStepPixels / (dy_by_four ? 4 : 1), s.rows, threads));
  const double blocks = s.blocks(), steps = s.all_steps();
  const double fragments = s.column_groups * plan.instance.fragments;  // with empty ones
  const int columns = s.octets * kOctet * s.taps;
  const double words =
      number(s.octets * kOctet) * s.plane_piece() + number(s.rows) * s.piece_steps() * kStepPixels;
  return {.flops = problem.nominal_flops(),
          .bytes = problem.nominal_bytes(),
          // three products of TF32
          .issued = 3 * blocks * steps * 2 * kStepPixels * s.rows * fragments * kOctet,
          .cached = 4 * words * s.pieces * blocks,
          .schedule = schedule_of(plan.instance),
          .blocks = blocks,
          .resident = number(
              std::max(1, std::min((machine.shared_bytes + 1024) / (plan.shared_bytes + 1024),
                                   plan.instance.resident * kMaxWarps / warps))),
          .chain = std::ceil(steps / s.shares),
          .copies = copies,
          // Barriers of the pieces, waits for a free stage, waits for copies where there is only
          // one stage, rows that a warp stores.
          .waits = number(s.pieces + ceil_div(s.pieces, s.stages) - 1 +
                          (s.stages == 1 ? s.pieces - 1 : 0) +
                          ceil_div(columns, 128) * ceil_div(s.rows, warps)),
          .listed_warps = blocks * copies * warps,
          .stored = blocks * s.rows * columns,
          .tensor_cores = true};
}

// Calls visit(plan) for every possible tiling.
template <class Visit>
void visit_plans(const Conv2dProblem& z, const Machine& machine, const Visit& visit) {
  const FewPixelsParams whole = sizes_of(z);
  const int most_rows = round_up(whole.out_channels, kRows);
  const int most_octets = std::min(ceil_div(whole.in_channels, kOctet), kMaxOctets);
  visit_pieces(whole, [&](int images, int lines) {
    // Rejects planes that do not fit, before the product of their sizes overflows an int.
    const std::int64_t stored_lines = std::int64_t{lines - 1} * whole.step_h + whole.extent_h;
    if (images * stored_lines * whole.line * kOctet * 4 > machine.shared_bytes) return;
    const FewPixelsParams with_pieces = with_piece(whole, images, lines);
    for (const Instance& instance : kInstances) {
      for (int octets = 1; octets <= most_octets; ++octets) {
        FewPixelsTiling plan{.sizes = with_pieces, .instance = instance};
        FewPixelsParams& s = plan.sizes;
        s.octets = octets;
        s.column_groups = ceil_div(s.fragments(), instance.fragments);
        if (s.column_groups > kMaxWarps) break;
        s.sum_pitch = sum_pitch_of(octets * kOctet * s.taps, s.taps);
        for (s.row_groups = 1; s.row_groups * s.column_groups <= kMaxWarps; ++s.row_groups) {
          s.rows = s.row_groups * instance.row_tiles * kRows;
          if (s.rows - kRows >= most_rows) break;
          s.row_blocks = ceil_div(s.out_channels, s.rows);
          s.by_row_blocks = FastDivisor(s.row_blocks);
          s.x_at = s.rows * s.dy_pitch;
          s.stage_words = s.x_at + octets * kOctet * s.plane_pitch;
          const int steps = s.all_steps();
          const int most_stages = std::min(s.pieces, kMaxStages);
          for (s.shares = 1; s.warps() <= kMaxWarps && s.shares <= steps; ++s.shares) {
            if (!instance.cuts && ceil_div(steps, s.shares) > kChainSteps) continue;
            for (s.stages = 1; s.stages <= most_stages; ++s.stages) {
              const std::int64_t bytes =
                  4 * std::max(std::int64_t{s.stages} * s.stage_words + s.piece_pixels(),
                               std::int64_t{s.shares} * s.rows * s.sum_pitch);
              if (bytes > machine.shared_bytes) break;
              plan.shared_bytes = static_cast<int>(bytes);
              plan.cost = counts_of(plan, z, machine);
              visit(std::as_const(plan));
            }
          }
        }
      }
    }
  });
}

inline FewPixelsTiling plan_weight(const Conv2dProblem& z, const Machine& machine) {
  Cheapest<FewPixelsTiling> best({"conv2d", "few_pixels", Direction::backward_weight},
                                 DeviceType::cuda, z.dtype);
  visit_plans(z, machine, [&](const FewPixelsTiling& plan) { best.offer(plan, plan.cost); });
  return best.found();
}

}  // namespace convscope::few_pixels
