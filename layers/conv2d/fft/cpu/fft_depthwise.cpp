// SPDX-License-Identifier: Apache-2.0
// fft_depthwise.cpp: depthwise convolution by FFT. The lanes are independent channels, so a tile of
// L channels stays in L2 from pixels to outputs. First rows become spectra. Then the column of each
// pair is transformed, multiplied by the kernel's column and transformed back. At the end rows are
// transformed back.
#include "layers/conv2d/fft/cpu/fft_depthwise.h"

#include "framework/parallel.h"

namespace convscope::fft {
namespace {

class Depthwise {
 public:
  Depthwise(const FftTiling& plan, void* workspace)
      : plan_(plan),
        kernels_(point_kernels.get()),
        fft_(fft_kernels.get()),
        rows_(fft_.lengths[plan.columns.kernels]),
        columns_(fft_.lengths[plan.rows.kernels]),
        own_(static_cast<float*>(workspace)) {}

  // Returns the floats of all kernels' spectra [C/L, pairs, 2 T, L], or 0 in backward_weight, where
  // each thread keeps its sums.
  static Index prepared_floats(const FftTiling& plan) {
    return plan.for_dw ? 0 : plan.channel_blocks * spectrum_floats(plan);
  }
  // Returns the floats of a thread's scratch memory: the spectra of the rows of a tile [pairs, T,
  // 2, L], the columns of one pair, and pixels. backward_weight also has the spectra of dy and the
  // sums, both of the same size.
  static Index thread_floats(const FftTiling& plan) {
    const Index spectra = plan.for_dw ? 3 : 1;
    return spectra * spectrum_floats(plan) + 4 * plan.rows.length * plan.lanes +
           odd_lines(std::max(plan.rows.in * plan.columns.in, plan.z.r * plan.z.s) * plan.lanes);
  }

  void prepare(const float* w, float* prepared) const {
    parallel_chunks(plan_.channel_blocks, [&](Index block, int thread) {
      transform_kernel(w, block, prepared + block * spectrum_floats(plan_), own(thread));
    });
  }

  void pass(const DataPass& data) const {
    const Index per_image = plan_.rows.count * plan_.columns.count;
    parallel_chunks(plan_.channel_blocks * plan_.z.n, [&](Index chunk, int thread) {
      const Index block = chunk / plan_.z.n;
      const float* const u = data.prepared + block * spectrum_floats(plan_);
      float* const spectrum = own(thread);
      float* const points = spectrum + spectrum_floats(plan_);
      float* const panel = panel_of(thread);
      for (Index i = 0; i < per_image; ++i) {
        const Tile tile(plan_, chunk % plan_.z.n * per_image + i);
        read_tile(data.in, false, block, tile, 1.0f, panel, spectrum);
        for (Index pair = 0; pair < plan_.pairs(); ++pair) {
          float* const column = spectrum + pair * pair_step();
          transform_column(column, pair, plan_.rows.in, false, points);
          fft_.points({.length = static_cast<int>(plan_.rows.length),
                       .two_real = pair == 0,
                       .accumulate = false,
                       .v = points,
                       .u = u + pair * pair_step(),
                       .out = points});
          transform_back(points, pair, plan_.forward ? 0 : plan_.z.r - 1, plan_.rows.out, column);
        }
        write_tile(spectrum, block, tile, data, panel);
      }
    });
  }

  void weights(const float* x, const float* dy, bool accumulate, float* dw) const {
    parallel_chunks(plan_.channel_blocks, [&](Index block, int thread) {
      float* const x_tile = own(thread);
      float* const dy_tile = x_tile + spectrum_floats(plan_);
      float* const sums = dy_tile + spectrum_floats(plan_);
      float* const points = sums + spectrum_floats(plan_);
      float* const points_dy = points + 2 * plan_.rows.length * plan_.lanes;
      float* const panel = panel_of(thread);
      for (Index i = 0; i < plan_.tiles(); ++i) {
        const Tile tile(plan_, i);
        read_tile(x, false, block, tile, 1.0f, panel, x_tile);
        read_tile(dy, true, block, tile, plan_.scale(), panel, dy_tile);
        for (Index pair = 0; pair < plan_.pairs(); ++pair) {
          transform_column(x_tile + pair * pair_step(), pair, plan_.rows.in, false, points);
          transform_column(dy_tile + pair * pair_step(), pair, plan_.rows.out, true, points_dy);
          fft_.points({.length = static_cast<int>(plan_.rows.length),
                       .two_real = pair == 0,
                       .accumulate = i > 0,
                       .v = points,
                       .u = points_dy,
                       .out = sums + pair * pair_step()});
        }
      }
      for (Index pair = 0; pair < plan_.pairs(); ++pair) {
        transform_back(sums + pair * pair_step(), pair, 0, plan_.z.r, x_tile + pair * pair_step());
      }
      write_kernel(x_tile, block, accumulate, panel, dw);
    });
  }

 private:
  static Index spectrum_floats(const FftTiling& plan) {
    return plan.pairs() * 2 * plan.rows.length * plan.lanes;
  }
  Index pair_step() const { return 2 * plan_.rows.length * plan_.lanes; }
  float* own(int thread) const { return own_ + thread * thread_floats(plan_); }
  float* panel_of(int thread) const {
    return own(thread) + (plan_.for_dw ? 3 : 1) * spectrum_floats(plan_) +
           4 * plan_.rows.length * plan_.lanes;
  }
  Index lanes_of(Index block) const {
    return std::min(plan_.lanes, plan_.channels - block * plan_.lanes);
  }

  void transform_rows(const float* panel, Index rows, Index columns, float factor,
                      float* spectrum) const {
    FftRows z;
    z.rows = static_cast<int>(rows);
    z.columns = static_cast<int>(columns);
    z.from = panel;
    z.from_row = columns * plan_.lanes;
    z.scale = factor;
    z.to = spectrum;
    z.pair_step = pair_step();
    rows_.rows(z);
  }
  // Transforms a column. The result has 2 T points, which is the layout of kernels (fft_kernels.h).
  void transform_column(const float* column, Index pair, Index rows, bool conjugate,
                        float* points) const {
    FftColumns z;
    z.rows = static_cast<int>(rows);
    z.two_real = pair == 0;
    z.conjugate = conjugate;
    z.count = 1;
    z.from = column;
    z.from_step = pair_step();
    z.to = points;
    z.point_step = plan_.lanes;
    columns_.kernel_columns(z);
  }
  void transform_back(const float* points, Index pair, Index first, Index rows,
                      float* column) const {
    FftColumnsBack z;
    z.first = static_cast<int>(first);
    z.rows = static_cast<int>(rows);
    z.two_real = pair == 0;
    z.count = 1;
    z.from = points;
    z.point_step = plan_.lanes;
    z.to = column;
    columns_.columns_back(z);
  }

  void transform_kernel(const float* w, Index block, float* u, float* spectrum) const {
    const Index taps = plan_.z.r * plan_.z.s;
    float* const panel = spectrum + spectrum_floats(plan_) + 4 * plan_.rows.length * plan_.lanes;
    kernels_.gather(w + block * plan_.lanes * taps, taps, taps, static_cast<int>(lanes_of(block)),
                    panel);
    transform_rows(panel, plan_.z.r, plan_.z.s, plan_.scale(), spectrum);
    for (Index pair = 0; pair < plan_.pairs(); ++pair) {
      transform_column(spectrum + pair * pair_step(), pair, plan_.z.r, plan_.forward,
                       u + pair * pair_step());
    }
  }

  // Computes the spectra of the rows of a tile. With `dy_tile` it is a tile of dy in
  // backward_weight, otherwise a tile of the pass's input.
  void read_tile(const float* from, bool dy_tile, Index block, const Tile& tile, float factor,
                 float* panel, float* spectrum) const {
    const Index h = dy_tile ? plan_.out_h : plan_.in_h;
    const Index w = dy_tile ? plan_.out_w : plan_.in_w;
    const Index rows = dy_tile ? plan_.rows.out : plan_.rows.in;
    const Index columns = dy_tile ? plan_.columns.out : plan_.columns.in;
    Planes{h, w}.read(kernels_, from + (tile.image * plan_.channels + block * plan_.lanes) * h * w,
                      lanes_of(block), tile.row + (dy_tile ? 0 : plan_.top),
                      tile.column + (dy_tile ? 0 : plan_.left), rows, columns, panel);
    transform_rows(panel, rows, columns, factor, spectrum);
  }

  void write_tile(const float* spectrum, Index block, const Tile& tile, const DataPass& data,
                  float* panel) const {
    const Index first = block * plan_.lanes;
    const Index plane = plan_.out_h * plan_.out_w;
    FftRowsBack z;
    z.rows = static_cast<int>(std::min(plan_.rows.out, plan_.out_h - tile.row));
    z.first = static_cast<int>(plan_.forward ? 0 : plan_.z.s - 1);
    z.columns = static_cast<int>(std::min(plan_.columns.out, plan_.out_w - tile.column));
    z.from = spectrum;
    z.pair_step = pair_step();
    z.to = panel;
    z.to_row = plan_.columns.out * plan_.lanes;
    z.bias = data.b == nullptr ? nullptr : data.b + first;
    z.lanes = static_cast<int>(lanes_of(block));
    rows_.rows_back(z);
    float* const to = data.out + (tile.image * plan_.channels + first) * plane +
                      tile.row * plan_.out_w + tile.column;
    for (Index i = 0; i < z.rows; ++i) {
      kernels_.scatter(panel + i * z.to_row, z.columns, z.lanes, to + i * plan_.out_w, plane);
      data.epilogue.finish(to + i * plan_.out_w, z.lanes, z.columns, plane);
    }
  }

  void write_kernel(const float* spectrum, Index block, bool accumulate, float* panel,
                    float* dw) const {
    const Index taps = plan_.z.r * plan_.z.s;
    const auto width = static_cast<int>(lanes_of(block));
    float* const to = dw + block * plan_.lanes * taps;
    if (accumulate) kernels_.gather(to, taps, taps, width, panel);
    FftRowsBack z;
    z.rows = static_cast<int>(plan_.z.r);
    z.columns = static_cast<int>(plan_.z.s);
    z.from = spectrum;
    z.pair_step = pair_step();
    z.to = panel;
    z.to_row = plan_.z.s * plan_.lanes;
    z.accumulate = accumulate;
    rows_.rows_back(z);
    kernels_.scatter(panel, taps, width, to, taps);
  }

  const FftTiling& plan_;
  const PointKernels& kernels_;
  const FftKernels& fft_;
  const FftLength& rows_;
  const FftLength& columns_;
  float* const own_;
};

}  // namespace

std::size_t depthwise_bytes(const FftTiling& plan) {
  return static_cast<std::size_t>(num_threads() * Depthwise::thread_floats(plan)) * sizeof(float);
}

std::size_t depthwise_prepared_bytes(const FftTiling& plan) {
  return static_cast<std::size_t>(Depthwise::prepared_floats(plan)) * sizeof(float);
}

void depthwise_prepare(const FftTiling& plan, const float* w, float* prepared, float* workspace) {
  Depthwise(plan, workspace).prepare(w, prepared);
}

void depthwise_pass(const FftTiling& plan, const DataPass& data) {
  Depthwise(plan, data.workspace).pass(data);
}

void depthwise_weights(const FftTiling& plan, const Conv2dBackwardWeightArgs& args) {
  Depthwise(plan, args.workspace)
      .weights(static_cast<const float*>(args.x), static_cast<const float*>(args.dy),
               args.accumulate, static_cast<float*>(args.dw));
}

}  // namespace convscope::fft
