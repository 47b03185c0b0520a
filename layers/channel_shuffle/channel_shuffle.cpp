// SPDX-License-Identifier: Apache-2.0
// channel_shuffle.cpp: interleaves the groups of channels.
#include "layers/channel_shuffle/channel_shuffle.h"

#include <algorithm>

#include "framework/graph/simple_operation.h"
#include "framework/parallel.h"
#include "layers/layer_types.h"

namespace convscope {

constinit KernelSlot<void(std::int64_t, std::int64_t, const Tensor&, const Tensor&)>
    channel_shuffle_kernel{"channel_shuffle"};

namespace {

class ChannelShuffleOperation final : public SimpleOperation {
 public:
  explicit ChannelShuffleOperation(std::int64_t groups)
      : SimpleOperation("channel_shuffle", {.nchw16c = true, .nhwc = false}), groups_(groups) {}
  TensorDesc bind(Graph& graph) override {
    const TensorDesc desc = SimpleOperation::bind(graph);
    channels_ = desc.shape[1];
    return desc;
  }
  Shape output_shape(const std::vector<Shape>& x) const override {
    return ChannelShuffle(groups_).output_shape(x[0]);
  }
  void run(const Forward& a) const override {
    channel_shuffle_kernel.get(a.device())(channels_, groups_, a.x[0], a.y);
  }
  void run(const Backward& a) const override {
    channel_shuffle_kernel.get(a.device())(channels_, channels_ / groups_, a.dy, a.dx[0]);
  }

 private:
  std::int64_t groups_, channels_ = 0;
};

// A plane of y is a copy of a plane of x.
template <class T>
void shuffle_planes(std::int64_t channels, std::int64_t groups, const Tensor& x, const Tensor& y) {
  const std::int64_t pixels = x.dim(2) * x.dim(3);
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / (1 + pixels));
  parallel_for(x.dim(0) * channels, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const std::int64_t c = plane % channels;
      const std::int64_t from = plane - c + c % groups * (channels / groups) + c / groups;
      std::copy_n(x.data<T>() + from * pixels, pixels, y.data<T>() + plane * pixels);
    }
  });
}

// Block b of y gets each of its 16 lanes from some lane of some block of x.
void shuffle_blocks(std::int64_t channels, std::int64_t groups, const Tensor& x, const Tensor& y) {
  constexpr std::int64_t kLanes = kChannelBlock;
  const std::int64_t blocks = x.dim(1), pixels = x.dim(2) * x.dim(3);
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / (1 + pixels * kLanes));
  parallel_for(x.dim(0) * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const image = x.data<float>() + i / blocks * blocks * pixels * kLanes;
      float* const to = y.data<float>() + i * pixels * kLanes;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const std::int64_t c = i % blocks * kLanes + lane;
        const std::int64_t from = c % groups * (channels / groups) + c / groups;
        const float* const source = image + from / kLanes * pixels * kLanes + from % kLanes;
        for (std::int64_t p = 0; p < pixels; ++p) {
          to[p * kLanes + lane] = c < channels ? source[p * kLanes] : 0.0f;
        }
      }
    }
  });
}

void channel_shuffle_cpu(std::int64_t channels, std::int64_t groups, const Tensor& x,
                         const Tensor& y) {
  if (x.rank() == 5) return shuffle_blocks(channels, groups, x, y);
  x.dtype() == DType::f64 ? shuffle_planes<double>(channels, groups, x, y)
                          : shuffle_planes<float>(channels, groups, x, y);
}

}  // namespace

CONVSCOPE_KERNEL(channel_shuffle_kernel, cpu, channel_shuffle_cpu)

Variable channel_shuffle(const Variable& x, std::int64_t groups) {
  return apply(std::make_unique<ChannelShuffleOperation>(groups), {x});
}

Shape ChannelShuffle::output_shape(const Shape& input) const {
  CONVSCOPE_CHECK(input.rank() == 4, "channel_shuffle", "expected x [N,C,H,W], got ", input);
  CONVSCOPE_CHECK(groups_ >= 1 && input[1] % groups_ == 0, "channel_shuffle",
                  "expected groups to divide the channels of x, got ", groups_, " groups and x ",
                  input);
  return input;
}

CONVSCOPE_REGISTER_LAYER("channel_shuffle",
                         {.doc = "interleaves the channels of groups",
                          .fields = {{.name = "groups",
                                      .type = OptionType::integer,
                                      .doc = "number of groups; divides the number of channels",
                                      .required = true,
                                      .min = 1,
                                      .max = 1 << 20}},
                          .build = [](const Options& options, const Shape&,
                                      LayerContext&) -> std::shared_ptr<Module> {
                            return std::make_shared<ChannelShuffle>(options.integer("groups"));
                          }})

}  // namespace convscope
