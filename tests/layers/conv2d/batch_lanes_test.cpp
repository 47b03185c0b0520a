// SPDX-License-Identifier: Apache-2.0
// batch_lanes_test.cpp: tests kernels that hold one sample per vector lane (convolution, ReLU,
// max-pool and their gradients) against the separate operations of the dynamic graph in double. All
// numbers are small integers: sums are exact in f32 in any order, equal pixels are frequent, and
// all bits must agree.
#include "layers/conv2d/batch_lanes/cpu/batch_lanes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "framework/ops/elementwise.h"
#include "framework/random.h"
#include "layers/conv2d/conv2d.h"
#include "layers/pool2d/pool2d.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using Index = std::int64_t;
using testing::MachineScope;

constexpr Pool2dWindow kWindow{};  // 2x2, stride 2

// An array of `count` elements with 64-byte alignment, filled with NaN (or 0xee) and followed by a
// guard.
template <class T>
class Guarded {
 public:
  explicit Guarded(Index count)
      : count_(count), block_({}, static_cast<std::size_t>(count + kGuard) * sizeof(T)) {
    for (Index i = 0; i < count + kGuard; ++i) data()[i] = poison();
  }
  T* data() const { return static_cast<T*>(block_.data()); }
  T& operator[](Index i) const { return data()[i]; }
  bool whole() const {
    for (Index i = count_; i < count_ + kGuard; ++i) {
      if (std::memcmp(data() + i, &kPoison, sizeof(T)) != 0) return false;
    }
    return true;
  }
  void clear() const { std::fill_n(data(), count_, T{}); }

 private:
  static constexpr Index kGuard = 64;
  static constexpr T kPoison =
      std::is_floating_point_v<T> ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(0xee);
  static T poison() { return kPoison; }
  Index count_;
  Workspace block_;
};

Tensor integers(const Shape& shape, std::uint64_t stream) {
  Generator random(7, stream);
  const Tensor out = Tensor::empty(shape, DType::f64);
  for (Index i = 0; i < out.numel(); ++i) {
    out.data<double>()[i] = static_cast<double>(random.below(7)) - 3.0;
  }
  return out;
}

std::vector<float> floats(const Tensor& from) {
  const double* const values = from.data<double>();
  return {values, values + from.numel()};
}

// The results of the separate operations.
struct Expected {
  Tensor y, dx, dw, db;
  std::vector<std::uint8_t> winners;
};

struct Layer {
  Conv2dProblem problem;
  bool relu, pool;
  Tensor x, w, b, dy;

  Layer(const std::string& text, bool with_relu, bool with_pool)
      : problem(Conv2dProblem::parse(text)),
        relu(with_relu),
        pool(with_pool),
        x(integers(problem.x_shape(), 1)),
        w(integers(problem.w_shape(), 2)),
        b(integers({problem.k}, 3)) {
    Shape y = problem.y_shape();
    if (pool) y = {y[0], y[1], y[2] / 2, y[3] / 2};
    dy = integers(y, 4);
  }

  Expected expected() const {
    const Variable vx(x, true), vw(w, true), vb(b, true);
    Variable y = conv2d(
        vx, vw, vb,
        {.stride_h = problem.stride_h,
         .stride_w = problem.stride_w,
         .padding = {problem.pad_top, problem.pad_bottom, problem.pad_left, problem.pad_right}});
    Expected out;
    if (relu) y = convscope::relu(y);
    if (pool) {
      const Tensor taps = Tensor::empty(dy.shape(), DType::u8);
      const Tensor pooled = Tensor::empty(dy.shape(), DType::f64);
      max_pool_kernel.get(Device{})(y.value(), kWindow, pooled, taps);
      out.winners.assign(taps.data<std::uint8_t>(), taps.data<std::uint8_t>() + taps.numel());
      for (Index i = 0; i < taps.numel(); ++i) {
        if (relu && pooled.data<double>()[i] <= 0) {
          out.winners[static_cast<std::size_t>(i)] = kNoWinner;
        }
      }
      y = max_pool2d(y, kWindow);
    }
    y.backward(dy);
    out.y = y.value();
    out.dx = vx.grad();
    out.dw = vw.grad();
    out.db = vb.grad();
    return out;
  }
};

// Copies lane group `group` of a tensor [N, ...].
void take_group(const Tensor& from, Index group, int lanes, const Guarded<float>& to) {
  const Index n = from.dim(0);
  const Index size = from.numel() / n;
  const std::vector<float> values = floats(from);
  samples_to_lanes(values.data() + group * lanes * size, std::min<Index>(lanes, n - group * lanes),
                   size, lanes, to.data());
  EXPECT_TRUE(to.whole());
}

// Writes the samples that the lanes of a group hold to their positions in `to`, [N, size].
template <class T>
void put_group(const Guarded<T>& from, Index group, int lanes, Index n, Index size,
               std::vector<T>& to) {
  EXPECT_TRUE(from.whole());
  for (Index lane = 0; lane < lanes && group * lanes + lane < n; ++lane) {
    for (Index i = 0; i < size; ++i) {
      to[static_cast<std::size_t>((group * lanes + lane) * size + i)] = from[i * lanes + lane];
    }
  }
}

bool same_bits(const Guarded<float>& a, const Guarded<float>& b, Index count) {
  return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(count) * sizeof(float)) == 0;
}

void check_layer(const Layer& layer, int lanes) {
  SCOPED_TRACE(cat(layer.problem.text(), layer.relu ? " relu" : "", layer.pool ? " pool" : "", " ",
                   lanes, " lanes, ", name_of(current_isa())));
  const Expected expected = layer.expected();
  const LanesConv z(layer.problem, lanes, layer.relu, layer.pool);
  const LanesKernels& kernels = lanes_kernels.get();
  const Index n = layer.problem.n;
  const Index groups = lane_groups(n, lanes);
  const std::vector<float> w = floats(layer.w);
  const std::vector<float> b = floats(layer.b);
  Guarded<float> packed(z.weight_floats), packed_backward(z.weight_floats);
  kernels.pack_weights(z, w.data(), packed.data());
  kernels.pack_weights_backward(z, w.data(), packed_backward.data());
  EXPECT_TRUE(packed.whole() && packed_backward.whole());

  constexpr Index kChunks = 2;
  const Guarded<float> sums(kChunks * z.sums_floats), sums_at_once(z.sums_floats);
  sums.clear();
  sums_at_once.clear();
  const Index y_size = z.y_floats / lanes;
  std::vector<float> y(static_cast<std::size_t>(n * y_size));
  std::vector<float> dx(static_cast<std::size_t>(layer.x.numel()));
  std::vector<std::uint8_t> winners(layer.pool ? y.size() : 0);
  for (Index group = 0; group < groups; ++group) {
    const Guarded<float> gx(z.x_floats), gdy(z.y_floats);
    take_group(layer.x, group, lanes, gx);
    take_group(layer.dy, group, lanes, gdy);
    const Guarded<float> gy(z.y_floats), gdz(z.gradient_floats), gdx(z.x_floats);
    const Guarded<float> scratch(z.forward_scratch_floats);
    const Guarded<float> data_scratch(z.backward_data_scratch_floats);
    const Guarded<float> weight_scratch(z.backward_weight_scratch_floats);
    const Guarded<std::uint8_t> gwinners(z.winner_bytes);
    kernels.forward(z, gx.data(), packed.data(), b.data(), gy.data(),
                    layer.pool ? gwinners.data() : nullptr, scratch.data());
    put_group(gy, group, lanes, n, y_size, y);
    if (layer.pool) put_group(gwinners, group, lanes, n, y_size, winners);
    float* const chunk = sums.data() + group % kChunks * z.sums_floats;
    const bool same = !layer.pool && !layer.relu;
    kernels.output_gradient(z, gdy.data(), gy.data(), gwinners.data(), same ? nullptr : gdz.data(),
                            chunk);
    const float* const dz = same ? gdy.data() : gdz.data();
    kernels.backward_data(z, dz, packed_backward.data(), gdx.data(), data_scratch.data());
    put_group(gdx, group, lanes, n, z.x_floats / lanes, dx);
    kernels.backward_weight(z, gx.data(), dz, chunk, weight_scratch.data());
    // kernels.backward() computes the whole backward pass in one call. Its dx and its sums (dw and
    // db) must have the same bits as those of the separate calls, also if the caller requests only
    // dx or only the sums.
    const Guarded<float> again(z.x_floats), alone(z.x_floats);
    const Guarded<float> all_scratch(z.backward_scratch_floats);
    const auto backward = [&](float* to_dx, float* to_sums) {
      kernels.backward(z, gx.data(), layer.pool ? nullptr : gy.data(), gwinners.data(), gdy.data(),
                       packed_backward.data(), to_dx, to_sums, all_scratch.data());
    };
    if (group == 0) {
      backward(nullptr, sums_at_once.data());
      backward(alone.data(), nullptr);
      EXPECT_TRUE(same_bits(alone, gdx, z.x_floats));
      sums_at_once.clear();
    }
    backward(again.data(), sums_at_once.data());
    EXPECT_TRUE(same_bits(again, gdx, z.x_floats));
    EXPECT_TRUE(again.whole() && alone.whole() && all_scratch.whole());
    EXPECT_TRUE(gdz.whole() && scratch.whole() && data_scratch.whole() && weight_scratch.whole());
  }
  EXPECT_TRUE(sums.whole());
  EXPECT_EQ(y, floats(expected.y));
  EXPECT_EQ(winners, expected.winners);
  EXPECT_EQ(dx, floats(expected.dx));

  const Guarded<float> dw(z.weight_floats), db(z.k);
  const Index half = z.k / 2;
  kernels.reduce(z, sums.data(), z.sums_floats, kChunks, 0, half, dw.data(), db.data(), false);
  kernels.reduce(z, sums.data(), z.sums_floats, kChunks, half, z.k, dw.data(), db.data(), false);
  EXPECT_TRUE(dw.whole() && db.whole());
  EXPECT_EQ(std::vector<float>(dw.data(), dw.data() + z.weight_floats), floats(expected.dw));
  EXPECT_EQ(std::vector<float>(db.data(), db.data() + z.k), floats(expected.db));
  EXPECT_TRUE(sums_at_once.whole());
  const Guarded<float> dw_again(z.weight_floats), db_again(z.k);
  kernels.reduce(z, sums_at_once.data(), z.sums_floats, 1, 0, z.k, dw_again.data(), db_again.data(),
                 false);
  EXPECT_TRUE(same_bits(dw_again, dw, z.weight_floats));
  EXPECT_TRUE(same_bits(db_again, db, z.k));
  kernels.reduce(z, sums.data(), z.sums_floats, kChunks, 0, z.k, dw.data(), nullptr, true);
  for (Index i = 0; i < z.weight_floats; ++i) {
    ASSERT_EQ(dw[i], 2 * static_cast<float>(expected.dw.data<double>()[i]));
  }
}

// Tests each instruction set, 4, 8 and 16 lanes, with and without ReLU and pooling.
void check_problem(const std::string& text) {
  const MachineScope scope;
  for (int i = 0; i < 4 && !::testing::Test::HasFailure(); ++i) {
    const Layer layer(text, i % 2 != 0, i / 2 != 0);
    if (layer.pool && (layer.problem.p() < 2 || layer.problem.q() < 2)) continue;
    for (const int lanes : {4, 8, 16}) {
      if (LanesConv::refusal(layer.problem, lanes)[0] != 0) continue;
      for (int isa = 0; isa < kIsaCount; ++isa) {
        if (!supports_isa(static_cast<Isa>(isa))) continue;
        set_isa(static_cast<Isa>(isa));
        check_layer(layer, lanes);
      }
    }
  }
}

class LanesProblem : public ::testing::TestWithParam<const char*> {};

TEST_P(LanesProblem, GivesTheBitsOfTheSeparateOperations) { check_problem(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    BatchLanes, LanesProblem,
    ::testing::Values("n=1,c=1,h=12,w=12,k=6,r=5,s=5", "n=3,c=6,h=12,w=12,k=16,r=5,s=5",
                      "n=5,c=3,h=9,w=14,k=6,r=3,s=3", "n=17,c=3,h=11,w=13,k=7,r=7,s=7",
                      "n=17,c=2,h=8,w=9,k=5,r=5,s=5,pad=2",       // padding on all sides
                      "n=5,c=2,h=7,w=6,k=3,r=3,s=5,pad=2x0x1x3",  // another one on each side
                      "n=3,c=4,h=5,w=5,k=9,r=1,s=1",              // a kernel of one tap
                      "n=5,c=2,h=9,w=10,k=3,r=2,s=4",             // even kernels
                      "n=3,c=1,h=4,w=13,k=2,r=3,s=9",             // more taps than one tile has
                      "n=17,c=3,h=13,w=12,k=4,r=3,s=3,stride=2",  // strides
                      "n=5,c=2,h=12,w=9,k=5,r=5,s=3,stride=3x2,pad=1",
                      "n=5,c=2,h=12,w=9,k=5,r=3,s=3,stride=2x1,pad=1",
                      "n=3,c=2,h=3,w=3,k=2,r=3,s=3",        // one pixel of y
                      "n=3,c=2,h=4,w=4,k=2,r=3,s=3",        // one window
                      "n=2,c=2,h=1,w=2,k=3,r=3,s=3,pad=3",  // mostly padding
                      "n=4,c=1,h=28,w=28,k=6,r=5,s=5", "n=2,c=1,h=3,w=40,k=13,r=1,s=5",
                      "n=4,c=2,h=6,w=8,k=7,r=3,s=3",
                      "n=4,c=2,h=6,w=10,k=3,r=3,s=5",  // rows of 6 pixels
                      "n=4,c=1,h=6,w=12,k=4,r=3,s=3"));

TEST(BatchLanes, RandomProblemsGiveTheBitsOfTheSeparateOperations) {
  Generator random(5, 1);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random.below(static_cast<std::uint32_t>(high - low + 1)));
  };
  for (int i = 0; i < 12 && !HasFailure(); ++i) {
    const int r = draw(1, 7), s = draw(1, 7), pad = draw(0, 3);
    check_problem(cat("n=", draw(1, 18), ",c=", draw(1, 4), ",h=", draw(r, 14), ",w=", draw(s, 18),
                      ",k=", draw(1, 8), ",r=", r, ",s=", s, ",pad=", pad, ",stride=", draw(1, 2)));
  }
}

// A NaN in x must reach every pooling window that reads it, and must be the maximum there. For
// tiles that contain NaN, the kernels find the maximum by a separate path.
TEST(BatchLanes, ANaNInXWinsTheWindowsThatItReaches) {
  const MachineScope scope;
  for (const bool relu : {false, true}) {
    const Layer layer("n=4,c=2,h=12,w=14,k=7,r=3,s=3", relu, true);
    layer.x.data<double>()[(1 * 2 + 1) * 12 * 14 + 5 * 14 + 7] = std::nan("");  // sample 1, c 1
    const Expected expected = layer.expected();
    for (const int lanes : {4, 8, 16}) {
      for (int isa = 0; isa < kIsaCount; ++isa) {
        if (!supports_isa(static_cast<Isa>(isa))) continue;
        set_isa(static_cast<Isa>(isa));
        const LanesConv z(layer.problem, lanes, relu, true);
        const Guarded<float> x(z.x_floats), y(z.y_floats), packed(z.weight_floats);
        const Guarded<std::uint8_t> winners(z.winner_bytes);
        take_group(layer.x, 0, lanes, x);
        const std::vector<float> w = floats(layer.w), b = floats(layer.b);
        lanes_kernels.get().pack_weights(z, w.data(), packed.data());
        lanes_kernels.get().forward(z, x.data(), packed.data(), b.data(), y.data(), winners.data(),
                                    nullptr);
        const Index size = z.y_floats / lanes;
        std::vector<float> got(static_cast<std::size_t>(4 * size));
        std::vector<std::uint8_t> won(got.size());
        put_group(y, 0, lanes, 4, size, got);
        put_group(winners, 0, lanes, 4, size, won);
        EXPECT_EQ(won, expected.winners);
        const double* const want = expected.y.data<double>();
        Index count = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          if (std::isnan(want[i])) ++count;
          ASSERT_TRUE(std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]) << i;
        }
        EXPECT_EQ(count, 7 * 2 * 2);
      }
    }
  }
}

// ---- pooling and ReLU after an identity convolution: 1x1, with the weight 1 ---------------------

struct Window {
  float pixels[4];
  float y, y_relu;
  int winner, winner_relu;
};

void check_windows(const std::vector<Window>& windows, Index first, Index count, int lanes,
                   bool relu) {
  SCOPED_TRACE(cat(name_of(current_isa()), ", ", lanes, " lanes", relu ? ", relu" : "", ", ", count,
                   " windows from ", first));
  // The image has odd sides, so no pooling window contains its last row and column. All lanes have
  // the same list of windows, but lane l starts l windows later.
  const Index h = 3, w = 2 * count + 1;
  const LanesConv z(Conv2dProblem::parse(cat("n=", lanes, ",c=1,h=", h, ",w=", w, ",k=1,r=1,s=1")),
                    lanes, relu, true);
  const auto window_of = [&](Index q, Index lane) -> const Window& {
    return windows[static_cast<std::size_t>(first + q + lane) % windows.size()];
  };
  const Guarded<float> x(h * w * lanes), y(count * lanes), dy(count * lanes);
  // dz has no row or column outside of windows.
  const Guarded<float> dz(z.conv_p * z.conv_q * lanes), packed(z.weight_floats),
      scratch(z.forward_scratch_floats);
  const Guarded<std::uint8_t> winners(count * lanes);
  for (Index i = 0; i < h * w * lanes; ++i) x[i] = 0;
  for (Index q = 0; q < count; ++q) {
    for (Index lane = 0; lane < lanes; ++lane) {
      for (Index i = 0; i < 4; ++i) {
        x[((i / 2) * w + 2 * q + i % 2) * lanes + lane] = window_of(q, lane).pixels[i];
      }
      dy[q * lanes + lane] = static_cast<float>(1 + q);
    }
  }
  const LanesKernels& kernels = lanes_kernels.get();
  const float one = 1;
  kernels.pack_weights(z, &one, packed.data());
  kernels.forward(z, x.data(), packed.data(), nullptr, y.data(), winners.data(), scratch.data());
  kernels.output_gradient(z, dy.data(), y.data(), winners.data(), dz.data(), nullptr);
  EXPECT_TRUE(y.whole() && winners.whole() && dz.whole() && scratch.whole());
  for (Index q = 0; q < count; ++q) {
    for (Index lane = 0; lane < lanes; ++lane) {
      const Window& window = window_of(q, lane);
      const float want = relu ? window.y_relu : window.y;
      const float got = y[q * lanes + lane];
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << q << " " << lane;
      const int winner = relu ? window.winner_relu : window.winner;
      ASSERT_EQ(winners[q * lanes + lane], winner) << q << " " << lane;
      for (Index i = 0; i < 4; ++i) {
        ASSERT_EQ(dz[((i / 2) * z.conv_q + 2 * q + i % 2) * lanes + lane],
                  i == winner ? static_cast<float>(1 + q) : 0.0f);
      }
    }
  }
}

TEST(BatchLanes, PoolingPrefersTheFirstOfEqualsAndTheLastNaN) {
  const MachineScope scope;
  const float nan = std::nanf("");
  const std::vector<Window> windows = {
      {{1, 2, 3, 4}, 4, 4, 3, 3},
      {{4, 3, 2, 1}, 4, 4, 0, 0},
      {{1, 1, 1, 1}, 1, 1, 0, 0},
      {{0, 2, 2, 0}, 2, 2, 1, 1},
      {{0, 0, 5, 5}, 5, 5, 2, 2},
      {{-1, -2, -3, 0}, 0, 0, 3, kNoWinner},
      {{-1, -1, -2, -2}, -1, 0, 0, kNoWinner},
      {{nan, 9, 1, 2}, nan, nan, 0, 0},
      {{nan, 1, nan, 2}, nan, nan, 2, 2},
      {{1, nan, 3, 4}, nan, nan, 1, 1},
      {{nan, nan, nan, nan}, nan, nan, 3, 3},
      {{-1, nan, -1, -1}, nan, nan, 1, 1},
  };
  const auto count = static_cast<Index>(windows.size());
  for (int isa = 0; isa < kIsaCount; ++isa) {
    if (!supports_isa(static_cast<Isa>(isa))) continue;
    set_isa(static_cast<Isa>(isa));
    for (const bool relu : {false, true}) {
      for (const int lanes : {4, 8, 16}) check_windows(windows, 0, count, lanes, relu);
      // A row of few pixels: convolution, then pooling.
      for (Index first = 0; first < count; ++first) check_windows(windows, first, 1, 4, relu);
    }
  }
}

TEST(BatchLanes, ReluKeepsNaNAndPassesItsGradient) {
  const MachineScope scope;
  constexpr int kFewLanes = 4;
  const LanesConv z(Conv2dProblem::parse("n=4,c=1,h=1,w=21,k=1,r=1,s=1"), kFewLanes, true, false);
  for (int isa = 0; isa < kIsaCount; ++isa) {
    if (!supports_isa(static_cast<Isa>(isa))) continue;
    set_isa(static_cast<Isa>(isa));
    constexpr Index kCount = 21 * kFewLanes;
    const Guarded<float> x(kCount), y(kCount), dy(kCount), dx(kCount);
    const Guarded<float> packed(z.weight_floats), scratch(z.forward_scratch_floats);
    for (Index i = 0; i < kCount; ++i) {
      x[i] = i % 5 == 3 ? std::nanf("") : static_cast<float>(i % 5 - 1);
      dy[i] = 5;
    }
    const LanesKernels& kernels = lanes_kernels.get();
    const float one = 1;
    kernels.pack_weights(z, &one, packed.data());
    kernels.forward(z, x.data(), packed.data(), nullptr, y.data(), nullptr, scratch.data());
    kernels.output_gradient(z, dy.data(), y.data(), nullptr, dx.data(), nullptr);
    EXPECT_TRUE(y.whole() && dx.whole());
    for (Index i = 0; i < kCount; ++i) {
      if (i % 5 == 3) {
        EXPECT_TRUE(std::isnan(y[i]));
      } else {
        EXPECT_EQ(y[i], i % 5 >= 2 ? static_cast<float>(i % 5 - 1) : 0.0f);
        EXPECT_FALSE(std::signbit(y[i]));
      }
      EXPECT_EQ(dx[i], i % 5 >= 2 ? 5.0f : 0.0f);
    }
  }
}

TEST(BatchLanes, SamplesGoToLanesAndBack) {
  const MachineScope scope;
  for (int isa = 0; isa < kIsaCount; ++isa) {
    if (!supports_isa(static_cast<Isa>(isa))) continue;
    set_isa(static_cast<Isa>(isa));
    for (const int lanes : {4, 8, 16}) {
      for (Index samples = 1; samples <= lanes; ++samples) {
        for (const Index size : {1, 5, 16, 37, 69}) {
          const Guarded<float> from(samples * size), in_lanes(lanes * size), back(samples * size);
          for (Index i = 0; i < samples * size; ++i) from[i] = static_cast<float>(i + 1);
          samples_to_lanes(from.data(), samples, size, lanes, in_lanes.data());
          lanes_to_samples(in_lanes.data(), samples, size, lanes, back.data());
          ASSERT_TRUE(in_lanes.whole() && back.whole());
          for (Index i = 0; i < size; ++i) {
            for (Index lane = 0; lane < lanes; ++lane) {
              ASSERT_EQ(in_lanes[i * lanes + lane],
                        lane < samples ? static_cast<float>(lane * size + i + 1) : 0.0f);
            }
          }
          ASSERT_EQ(std::memcmp(from.data(), back.data(),
                                static_cast<std::size_t>(samples * size) * sizeof(float)),
                    0);
        }
      }
    }
  }
}

TEST(BatchLanes, RefuseWhatTheyCannotCompute) {
  const auto refusal = [](const char* text, int lanes) {
    return std::string(LanesConv::refusal(Conv2dProblem::parse(text), lanes));
  };
  EXPECT_EQ(refusal("n=4,c=4,h=8,w=8,k=4,r=3,s=3", 4), "");
  EXPECT_EQ(refusal("n=4,c=4,h=8,w=8,k=4,r=3,s=3,groups=2", 16), "expects groups 1");
  EXPECT_EQ(refusal("n=4,c=4,h=8,w=8,k=4,r=3,s=3,dilation=2", 16), "expects dilation 1");
  EXPECT_EQ(refusal("n=4,c=4,h=8,w=8,k=4,r=3,s=3", 2), "expects 4, 8 or 16 lanes");
  EXPECT_EQ(refusal("n=4,c=4,h=8,w=8,k=4,r=3,s=3,stride=2", 8),
            "expects horizontal stride 1 or 16 lanes");
  EXPECT_THROW(LanesConv(Conv2dProblem::parse("n=1,h=3,w=3,r=3,s=3"), 16, false, true), Error);
}

}  // namespace
}  // namespace convscope
