// SPDX-License-Identifier: Apache-2.0
// deform_sampler.cuh: threads that make the rows of a matrix product: each row is a weighted sum of
// packed pixels, eight channels at a time, written as fp16/bf16 where the tensor cores read them.
//
//   forward, dw   a row of the K dimension is a sample of x: four corners, weighted by the place
//                 (problem.h)
//   dx            a row is the gradient for a pixel of x through one tap: the pixels of dy whose
//                 samples are around the pixel of x (deform_passes.cuh)
//
// A sampler runs one or two steps ahead. It multiplies pixels that it has loaded, and before the
// next barrier it issues the loads of a later step, so that the tensor cores do not wait for the
// caches. Its constructor begins with a barrier of the block.
// Read next  deform_cuda_plan.h; deform_passes.cuh
#pragma once

#include <cstdint>

#include "layers/conv2d/shared/cuda/half_steps.cuh"
#include "layers/deform_conv2d/fused/cuda/deform_cuda_plan.h"

namespace convscope::deform_cuda {

using half_tiles::power_of_two;

// ---- eight channels of a pixel -----------------------------------------------------------------

// The operands of each problem type. Row is the type of the packed pixels in memory.
struct ByF32 {  // f32 by three products of fp16
  using Row = float;
  using Half = Float16;
  static constexpr int kTerms = 3;
};
struct ByF16 {  // f16; also TF32, as fp16 (which has TF32's 10 bits) scaled by a power of two
  using Row = Float16;
  using Half = Float16;
  static constexpr int kTerms = 1;
};
struct ByBF16 {
  using Row = BFloat16;
  using Half = BFloat16;
  static constexpr int kTerms = 1;
};

template <class Row>
struct RowPiece {  // fp16 or bf16
  uint4 words = {};
};
template <>
struct RowPiece<float> {
  float4 first = {}, second = {};
};

// Piece `index` of packed pixels.
template <class Row>
__device__ inline RowPiece<Row> read_piece(const void* rows, int index) {
  RowPiece<Row> out;
  if constexpr (sizeof(Row) == 4) {
    const auto* const at = static_cast<const float4*>(rows) + 2 * static_cast<std::int64_t>(index);
    out.first = __ldg(at);
    out.second = __ldg(at + 1);
  } else {
    out.words = __ldg(static_cast<const uint4*>(rows) + index);
  }
  return out;
}

// Unpacks both 16-bit numbers of a word; one instruction each.
template <class Half>
__device__ inline float2 unpacked(unsigned word) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return floats_from_pair<Half>(word);
#else
  if constexpr (dtype_of<Half> == DType::bf16) {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
  } else {
    __half2 pair;
    __builtin_memcpy(&pair, &word, sizeof(pair));
    return __half22float2(pair);
  }
#endif
}

// sums += weight piece
template <class Row>
__device__ inline void add_piece(float (&sums)[kPieceNumbers], float weight,
                                 const RowPiece<Row>& piece) {
  if constexpr (sizeof(Row) == 4) {
    const float values[kPieceNumbers] = {piece.first.x,  piece.first.y,  piece.first.z,
                                         piece.first.w,  piece.second.x, piece.second.y,
                                         piece.second.z, piece.second.w};
#pragma unroll
    for (int i = 0; i < kPieceNumbers; ++i) sums[i] = fmaf(weight, values[i], sums[i]);
  } else {
    const unsigned words[4] = {piece.words.x, piece.words.y, piece.words.z, piece.words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpacked<Row>(words[i]);
      sums[2 * i] = fmaf(weight, pair.x, sums[2 * i]);
      sums[2 * i + 1] = fmaf(weight, pair.y, sums[2 * i + 1]);
    }
  }
}

// Writes eight sums as a 16-bit piece. With three terms, also writes the remainders of the sums,
// `plane` bytes further.
template <class By>
__device__ inline void write_sums(const float (&sums)[kPieceNumbers], unsigned char* to,
                                  int plane) {
  using Half = typename By::Half;
  unsigned high[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) high[i] = pair_from_floats<Half>(sums[2 * i], sums[2 * i + 1]);
  *reinterpret_cast<uint4*>(to) = make_uint4(high[0], high[1], high[2], high[3]);
  if constexpr (By::kTerms == 3) {
    unsigned low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpacked<Half>(high[i]);
      low[i] = pair_from_floats<Half>(sums[2 * i] - pair.x, sums[2 * i + 1] - pair.y);
    }
    *reinterpret_cast<uint4*>(to + plane) = make_uint4(low[0], low[1], low[2], low[3]);
  }
}

// A sum of weighted pieces, which is then written to shared memory. 16-bit operands are summed in
// 16 bits. This takes four more roundings, but a quarter of the instructions.
template <class By>
struct SampleSum {
  float sums[kPieceNumbers] = {};

  __device__ void add(const float4& weight, const RowPiece<typename By::Row> (&of)[4]) {
    const float weights[4] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) add_piece<typename By::Row>(sums, weights[i], of[i]);
  }
  __device__ void write(unsigned char* to, int plane) const { write_sums<By>(sums, to, plane); }
};
template <>
struct SampleSum<ByF16> {
  unsigned sums[kPieceNumbers / 2] = {};

  __device__ void add(const float4& weight, const RowPiece<Float16> (&of)[4]) {
    const float weights[4] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned by = pair_from_floats<Float16>(weights[i], weights[i]);
      const unsigned words[4] = {of[i].words.x, of[i].words.y, of[i].words.z, of[i].words.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[j] =
            i == 0 ? multiply_half2(by, words[j]) : multiply_add_half2(by, words[j], sums[j]);
      }
    }
  }
  __device__ void write(unsigned char* to, int) const {
    *reinterpret_cast<uint4*>(to) = make_uint4(sums[0], sums[1], sums[2], sums[3]);
  }
};

// ---- scales of f32 as halves -------------------------------------------------------------------

// Pointers to the largest magnitudes, stored as bits of an f32. No element of a row of the product
// is larger than values * factors * count.
struct Scaling {
  const unsigned* values = nullptr;   // of the packed pixels; null: 16 bits, which are not scaled
  const unsigned* factors = nullptr;  // of the mask; null: none is larger than 1
  const unsigned* count = nullptr;    // most samples of a cell; null: the weights add up to 1
  const unsigned* weights = nullptr;  // of the other operand, packed so that it is below 2^14
  bool packed_scaled = false;         // the pixels were packed with the scale, too
};
struct Scales {
  float row;       // scales the weights of a row
  float2 unscale;  // its two numbers undo the scales; one number could overflow
};

__device__ inline float2 two_powers(int exponent) {
  return make_float2(power_of_two(exponent / 2), power_of_two(exponent - exponent / 2));
}

__device__ inline int packed_exponent(unsigned bits) {
  return clamped_exponent(kHalfExponent - bound_exponent(bits));
}

__device__ inline Scales scales_of(const Scaling& z) {
  const int more = (z.factors != nullptr ? bound_exponent(*z.factors) : 0) +
                   (z.count != nullptr ? count_exponent(*z.count) + 2 : 0);
  if (z.values == nullptr) {
    // Without lists no element exceeds the largest pixel, so only sums over lists are scaled down.
    const int down = z.count != nullptr && more > 0 ? more : 0;
    return {power_of_two(clamped_exponent(-down)), two_powers(clamped_exponent(down))};
  }
  const int row = clamped_exponent(kHalfExponent - bound_exponent(*z.values) - more);
  const int before = z.packed_scaled ? packed_exponent(*z.values) : 0;
  return {power_of_two(clamped_exponent(row - before)),
          two_powers(-(row + packed_exponent(*z.weights)))};
}

// ---- places: where a tap of a pixel of y reads x ------------------------------------------------

struct Places {
  const void* offset = nullptr;  // [N, 2 O R S, P, Q]
  const void* mask = nullptr;    // [N, O R S, P, Q], or null
  bool in_f32 = true;            // else in the 16 bits of the problem's type
};

template <class Half>
__device__ inline float number_at(const void* from, bool in_f32, std::int64_t i) {
  return in_f32 ? __ldg(static_cast<const float*>(from) + i)
                : to_float(static_cast<const Half*>(from)[i]);
}

// A pixel of y: its image, its position in the image, and the place of tap (0,0) without an offset.
struct OutPixel {
  int image = -1, at = 0, v = 0, u = 0;
};
__device__ inline OutPixel out_pixel(const DeformShape& s, int pixel) {
  if (pixel >= s.out_pixels()) return {};
  OutPixel out;
  out.image = s.by_out_area.divide(pixel);
  out.at = pixel - out.image * s.out_area();
  const int p = s.by_out_w.divide(out.at);
  out.v = p * s.stride_h - s.pad_h;
  out.u = (out.at - p * s.out_w) * s.stride_w - s.pad_w;
  return out;
}

struct Offset {
  float v = 0, u = 0, factor = 1;
};
// Reads key j = o R S + tap.
template <class Half>
__device__ inline Offset read_offset(const Places& z, const DeformShape& s, const OutPixel& pixel,
                                     int key) {
  if (pixel.image < 0) return {};
  const std::int64_t at = static_cast<std::int64_t>(pixel.image) * s.keys() + key;
  const std::int64_t area = s.out_area();
  Offset out;
  out.v = number_at<Half>(z.offset, z.in_f32, 2 * at * area + pixel.at);
  out.u = number_at<Half>(z.offset, z.in_f32, (2 * at + 1) * area + pixel.at);
  if (z.mask != nullptr) out.factor = number_at<Half>(z.mask, z.in_f32, at * area + pixel.at);
  return out;
}

// The four pixels around a place (sampling position). `down` and `right` are the distance of the
// place from the first pixel.
struct Place {
  int pixel[4] = {-1, -1, -1, -1};  // -1: outside
  int h = -2, w = -2;               // the first pixel, from -1 on; -2: the place is outside
  float down = 0, right = 0;

  __device__ bool inside() const { return h >= -1; }

  __device__ float weight(int i) const {
    return (i / 2 == 1 ? down : 1 - down) * (i % 2 == 1 ? right : 1 - right);
  }
};
__device__ inline Place place_of(const DeformShape& s, const OutPixel& pixel, int tap,
                                 const Offset& offset) {
  Place out;
  if (pixel.image < 0) return out;
  const int r = s.by_kernel_w.divide(tap);
  const float v = static_cast<float>(pixel.v + r * s.dilation_h) + offset.v;
  const float u = static_cast<float>(pixel.u + (tap - r * s.kernel_w) * s.dilation_w) + offset.u;
  // A NaN position counts as inside, because comparisons with NaN are false. Its sample is NaN.
  if (v <= -1 || v >= static_cast<float>(s.in_h) || u <= -1 || u >= static_cast<float>(s.in_w)) {
    return out;
  }
  const float h = floorf(v), w = floorf(u);
  out.down = v - h;
  out.right = u - w;
  out.h = h == h ? static_cast<int>(h) : 0;  // NaN weights, at pixels that exist
  out.w = w == w ? static_cast<int>(w) : 0;
  const int from = (pixel.image * s.in_h + out.h) * s.in_w + out.w;
  const bool above = out.h >= 0, below = out.h + 1 < s.in_h;
  const bool left = out.w >= 0, right = out.w + 1 < s.in_w;
  if (above && left) out.pixel[0] = from;
  if (above && right) out.pixel[1] = from + 1;
  if (below && left) out.pixel[2] = from + s.in_w;
  if (below && right) out.pixel[3] = from + s.in_w + 1;
  return out;
}

// The pixels that a row adds up, and their weights. A pixel is given by the position of its piece
// 0. A corner outside of the image is replaced by the pixel of zeros after the last packed pixel,
// with weight 0.
struct Corners {
  int4 at;
  float4 weight;
};
__device__ inline Corners corners_of(const DeformShape& s, const OutPixel& pixel, int tap,
                                     const Offset& offset, float scale) {
  const Place place = place_of(s, pixel, tap, offset);
  const float factor = offset.factor * scale;
  // A sample outside of the image is 0 times its mask, so a NaN mask makes the sample NaN.
  const float none = place.inside() ? 0.0f : 0 * factor;
  const int pieces = s.x_pieces();
  int at[4];
  float weight[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    at[i] = (place.pixel[i] < 0 ? s.in_pixels() : place.pixel[i]) * pieces;
    weight[i] = place.pixel[i] < 0 ? none : place.weight(i) * factor;
  }
  return {make_int4(at[0], at[1], at[2], at[3]),
          make_float4(weight[0], weight[1], weight[2], weight[3])};
}

// ---- samplers -----------------------------------------------------------------------------------

// Four pieces that are being loaded.
template <class Row>
struct Held {
  RowPiece<Row> of[4];

  __device__ void ask(const void* rows, const int4& at, int piece) {
    of[0] = read_piece<Row>(rows, at.x + piece);
    of[1] = read_piece<Row>(rows, at.y + piece);
    of[2] = read_piece<Row>(rows, at.z + piece);
    of[3] = read_piece<Row>(rows, at.w + piece);
  }
  __device__ void add(float (&sums)[kPieceNumbers], const float4& weight) const {
    add_piece<Row>(sums, weight.x, of[0]);
    add_piece<Row>(sums, weight.y, of[1]);
    add_piece<Row>(sums, weight.z, of[2]);
    add_piece<Row>(sums, weight.w, of[3]);
  }
};

struct PlaceView {
  Places places;
  const void* rows = nullptr;  // x, packed
};

// The sampling positions (places) of a tile are in shared memory, because eight threads need each
// place. A row has two blocks of eight places. Eight threads of a row compute the places of one
// block while the places of the other block are used.
template <int kTileRows>
struct PlaceTable {
  static constexpr int kPlaces = 8;  // of a block
  static constexpr int kBytes = 2 * kPlaces * kTileRows * static_cast<int>(sizeof(Corners));

  int4* at;
  float4* weight;

  __device__ explicit PlaceTable(unsigned char* shared)
      : at(reinterpret_cast<int4*>(shared)),
        weight(reinterpret_cast<float4*>(shared + kBytes / 2)) {}
  static __device__ int index(int row, int place) {  // of two blocks
    return row * 2 * kPlaces + place % (2 * kPlaces);
  }
};

// Makes rows of samples for the products y and dw, which read x at sampling positions. A thread
// makes one piece of kRows rows in each step.
//   kColumns false   for y: a row is a pixel of y, and the K dimension walks over units and taps
//   kColumns true    for dw: the columns of the tile are fixed, and the rows walk over the pixels
//                    of y
template <class By, int kRows, int kTileRows, bool kColumns>
class Sampler {
 public:
  using View = PlaceView;
  using Table = PlaceTable<kTileRows>;

  // `piece` is the piece of the forward K dimension that this thread makes in the first step, `row`
  // the first row of this thread in the tile, `first_row` the tile's first pixel of y. Ends with a
  // barrier.
  __device__ Sampler(const View& z, const DeformShape& s, unsigned char* shared, int group,
                     int piece, int row, int first_row, float scale)
      : z_(z),
        s_(s),
        table_(shared),
        group_(group),
        piece_(piece),
        row_(row),
        first_row_(first_row),
        scale_(scale),
        log2_units_(s.unit == 8 ? 0 : 1),
        log2_steps_(s.unit == 8 ? 3 : 2) {
    read_offsets(0);
    write_places(0);
    __syncthreads();
    const ForwardPiece at = forward_piece(s, piece);
    ask_tap_ = at.tap;
    ask_unit_ = at.run * s.run_units + at.piece / s.unit;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) ask(held_[i]);
  }

  // Writes the rows of this step, `row_bytes` apart, and begins the next step.
  __device__ void step(unsigned char* to, int row_bytes, int plane) {
    const int place = place_of_step(step_);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      SampleSum<By> sum;
      sum.add(table_.weight[Table::index(row_ + i * kRowStep, place)], held_[0][i].of);
      sum.write(to + i * row_bytes, plane);
    }
    // Loads the offsets of the next block four steps before its first use, and computes its places
    // one step later. So a barrier comes between writing and reading the places.
    const int block_steps = 1 << log2_steps_;
    const int left = block_steps - (step_ & (block_steps - 1));
    const int next_block = ((step_ >> log2_steps_) + 1) * Table::kPlaces;
    if (left == 4) read_offsets(next_block);
    if (left == 3) write_places(next_block);
    ++step_;
#pragma unroll
    for (int i = 0; i + 1 < kHeld; ++i) {
#pragma unroll
      for (int j = 0; j < kRows; ++j) held_[i][j] = held_[i + 1][j];
    }
    ask(held_[kHeld - 1]);
  }

 private:
  using Half = typename By::Half;
  static constexpr int kRowStep = kTileRows / kRows;
  // The number of steps whose pixels are loaded ahead: two if there are enough registers.
  static constexpr int kHeld = By::kTerms == 1 && kRows == 1 ? 2 : 1;

  // Returns the index of the place that this thread's piece needs in a step, counted from step 0.
  __device__ int place_of_step(int step) const {
    const int lane = static_cast<int>(threadIdx.x) % kStepPieces;
    return (step << log2_units_) + (log2_units_ == 0 ? 0 : lane / 4);
  }
  // Return the pixel of y and the piece of the K dimension for place number `place` of row i.
  __device__ int pixel_of(int i, int place) const {
    const int row = first_row_ + row_ + i * kRowStep;
    return kColumns ? row + (place >> log2_units_) * kTileRows : row;
  }
  __device__ ForwardPiece piece_of(int place) const {
    const int lane = static_cast<int>(threadIdx.x) % kStepPieces;
    const int first = piece_ - lane;  // of step 0
    return forward_piece(s_,
                         first + (kColumns ? place & ((1 << log2_units_) - 1) : place) * s_.unit);
  }
  // Reads a block of places from `first` on. Each of the eight threads of a row reads one.
  __device__ void read_offsets(int first) {
    const int place = first + static_cast<int>(threadIdx.x) % kStepPieces;
    const ForwardPiece at = piece_of(place);
    const int run = group_ * s_.group_runs + at.run;
    const bool inside = at.run < s_.group_runs;
    const int key = inside ? s_.offset_group_of_run(run) * s_.taps + at.tap : 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const OutPixel pixel = inside ? out_pixel(s_, pixel_of(i, place)) : OutPixel{};
      offset_[i] = read_offset<Half>(z_.places, s_, pixel, key);
    }
  }
  __device__ void write_places(int first) {
    const int place = first + static_cast<int>(threadIdx.x) % kStepPieces;
    const ForwardPiece at = piece_of(place);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const OutPixel pixel =
          at.run < s_.group_runs ? out_pixel(s_, pixel_of(i, place)) : OutPixel{};
      const Corners corners = corners_of(s_, pixel, at.tap, offset_[i], scale_);
      const int to = Table::index(row_ + i * kRowStep, place);
      table_.at[to] = corners.at;
      table_.weight[to] = corners.weight;
    }
  }
  // Loads the pixels of the next step.
  __device__ void ask(Held<typename By::Row> (&held)[kRows]) {
    const int lane = static_cast<int>(threadIdx.x) & (s_.unit - 1);
    // After the last unit all corners are the pixel of zeros.
    const int piece =
        ask_unit_ < s_.group_units() ? group_ * s_.group_pieces() + ask_unit_ * s_.unit + lane : 0;
    const int place = place_of_step(asked_++);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      held[i].ask(z_.rows, table_.at[Table::index(row_ + i * kRowStep, place)], piece);
    }
    if constexpr (!kColumns) {
      ask_tap_ += 1 << log2_units_;
      while (ask_tap_ >= s_.taps) {
        ask_tap_ -= s_.taps;
        ++ask_unit_;
      }
    }
  }

  const View& z_;
  const DeformShape& s_;
  Table table_;
  int group_, piece_, row_, first_row_;
  float scale_;
  int log2_units_, log2_steps_;  // log2 of: units of a step, steps of a block
  int step_ = 0, asked_ = 0, ask_tap_ = 0, ask_unit_ = 0;
  Offset offset_[kRows];
  Held<typename By::Row> held_[kHeld][kRows];
};

// One sample in the list of a cell. A cell is the square between four neighbouring pixels of x. An
// entry has the sample's pixel of y, its distance from the cell's first pixel, and its mask.
struct alignas(16) Entry {
  int pixel;
  float down, right, factor;
};

struct ListView {
  const int* begin = nullptr;      // [O R S][N][H + 1][W + 1] + 1: the start of a cell's list
  const Entry* entries = nullptr;  // by lists
  const void* rows = nullptr;      // dy, packed
};

// The samples that read one pixel of x through one tap are in four cells. Their entries form two
// ranges: one for the two cells above the pixel, one for the two cells below.
struct Ranges {
  int begin[2] = {}, middle[2] = {}, end[2] = {};  // `middle`: where the right cell begins

  __device__ int count() const { return end[0] - begin[0] + end[1] - begin[1]; }
  // Returns entry i, and its weight at this pixel.
  __device__ Entry entry(const Entry* entries, int i, float& weight) const {
    const int above = end[0] - begin[0];
    const int range = i < above ? 0 : 1;
    const int at = range == 0 ? begin[0] + i : begin[1] + i - above;
    const int4 words = __ldg(reinterpret_cast<const int4*>(entries) + at);
    const Entry out{words.x, __int_as_float(words.y), __int_as_float(words.z),
                    __int_as_float(words.w)};
    const bool left = at < (range == 0 ? middle[0] : middle[1]);
    weight =
        (range == 0 ? out.down : 1 - out.down) * (left ? out.right : 1 - out.right) * out.factor;
    return out;
  }
};

// Gathers rows of the gradient of x: kRows pixels of x for each thread. The K dimension walks over
// taps and the channels of dy. The first four entries are loaded one step ahead.
template <class By, int kRows>
class ListSampler {
 public:
  using View = ListView;

  __device__ ListSampler(const View& z, const DeformShape& s, int run, int first_row, int row_step,
                         int depth, float scale)
      : z_(z),
        s_(s),
        first_key_(s.offset_group_of_run(run) * s.taps),
        first_piece_(s.by_group_runs.divide(run) * s.out_pieces),
        scale_(scale),
        now_{depth / s.out_pieces, depth % s.out_pieces} {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first_row + i * row_step;
      const int image = s.by_in_area.divide(row);
      const int at = row - image * s.in_area();
      const int h = s.by_in_w.divide(at);
      cell_[i] =
          row < s.in_pixels() ? (image * (s.in_h + 1) + h) * (s.in_w + 1) + at - h * s.in_w : -1;
    }
    next_ = now_;
    read_next();
    begin_step(true);
    __syncthreads();
  }

  __device__ void step(unsigned char* to, int row_bytes, int plane) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float sums[kPieceNumbers] = {};
      held_[i].add(sums, corners_[i].weight);
      for (int e = 4; e < count_[i]; e += 4) {
        const Corners more = read_entries(read_ranges(i, now_.tap), e);
        Held<Row> held;
        held.ask(z_.rows, more.at, first_piece_ + now_.piece);
        held.add(sums, more.weight);
      }
      write_sums<By>(sums, to + i * row_bytes, plane);
    }
    const int tap = now_.tap;
    now_ = next_;
    begin_step(now_.tap != tap);
  }

 private:
  using Row = typename By::Row;

  __device__ Corners read_entries(const Ranges& ranges, int first) const {
    const int count = ranges.count();
    const int pieces = s_.y_pieces();
    int at[4];
    float weight[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      at[j] = s_.out_pixels() * pieces;
      weight[j] = 0;
      if (first + j >= count) continue;
      const Entry entry = ranges.entry(z_.entries, first + j, weight[j]);
      at[j] = entry.pixel * pieces;
      weight[j] *= scale_;
    }
    return {make_int4(at[0], at[1], at[2], at[3]),
            make_float4(weight[0], weight[1], weight[2], weight[3])};
  }
  __device__ Ranges read_ranges(int i, int tap) const {
    Ranges out;
    if (tap >= s_.taps || cell_[i] < 0) return out;
    const int* const at =
        z_.begin + static_cast<std::int64_t>(first_key_ + tap) * s_.cells() + cell_[i];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int* const row = at + j * (s_.in_w + 1);
      out.begin[j] = __ldg(row);
      out.middle[j] = __ldg(row + 1);
      out.end[j] = __ldg(row + 2);
    }
    return out;
  }
  // Reads the ranges of next_, one step before they are used.
  __device__ void read_next() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) next_ranges_[i] = read_ranges(i, next_.tap);
  }
  __device__ void begin_step(bool new_tap) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (new_tap) {
        count_[i] = next_ranges_[i].count();
        corners_[i] = read_entries(next_ranges_[i], 0);
      }
      held_[i].ask(z_.rows, corners_[i].at, first_piece_ + now_.piece);
    }
    next_.advance(s_.out_pieces);
    if (next_.tap != now_.tap) read_next();
  }

  const View& z_;
  const DeformShape& s_;
  int first_key_, first_piece_;
  float scale_;
  BackwardPiece now_, next_;
  int cell_[kRows], count_[kRows];
  Ranges next_ranges_[kRows];
  Corners corners_[kRows];
  Held<Row> held_[kRows];
};

}  // namespace convscope::deform_cuda
