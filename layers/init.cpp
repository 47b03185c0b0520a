// SPDX-License-Identifier: Apache-2.0
// init.cpp: initial values of weights from counter-based random numbers: the same on every device,
// whatever the order in which layers are built.
#include "layers/init.h"

#include <algorithm>
#include <cmath>

#include "framework/memory/unbacked.h"
#include "framework/random.h"

namespace convscope {
namespace {

Tensor draw(const std::string& scheme, const Shape& shape, std::int64_t fan_in,
            LayerContext& context) {
  const auto fan = static_cast<float>(std::max<std::int64_t>(1, fan_in));
  Tensor out = Tensor::empty(shape);
  Generator random(context.seed, context.next_stream++);
  float* const to = out.data<float>();
  const std::int64_t count = memory_is_unbacked() ? 0 : out.numel();
  if (scheme == "kaiming_uniform") {
    const float bound = 1.0f / std::sqrt(fan);
    for (std::int64_t i = 0; i < count; ++i) to[i] = random.uniform(-bound, bound);
  } else if (scheme == "kaiming_normal") {
    const float deviation = std::sqrt(2.0f / fan);
    for (std::int64_t i = 0; i < count; ++i) to[i] = deviation * random.normal();
  } else {
    fail(ErrorKind::kConfig, "init",
         cat("expected one of ", join(init_schemes()), ", got '", scheme, "'"));
  }
  return out.to(context.device);
}

}  // namespace

const std::vector<std::string>& init_schemes() {
  static const std::vector<std::string> schemes{"kaiming_uniform", "kaiming_normal"};
  return schemes;
}

Tensor initial_weight(const std::string& scheme, const Shape& shape, std::int64_t fan_in,
                      LayerContext& context) {
  return draw(scheme, shape, fan_in, context);
}

Tensor initial_bias(const std::string& scheme, const Shape& shape, std::int64_t fan_in,
                    LayerContext& context) {
  if (scheme == "kaiming_normal") {
    ++context.next_stream;
    return Tensor::zeros(shape, DType::f32, context.device);
  }
  return draw(scheme, shape, fan_in, context);
}

OptionField init_field() {
  return {.name = "init",
          .type = OptionType::text,
          .default_value = std::string("kaiming_uniform"),
          .doc = "initialisation of the weights",
          .choices = init_schemes()};
}

}  // namespace convscope
