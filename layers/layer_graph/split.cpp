// SPDX-License-Identifier: Apache-2.0
// split.cpp: divides the channels of its input into several results.
//
// Shapes      x [N,C,..] -> y_0 [N,c_0,..], y_1 [N,c_1,..], ..;  C = c_0 + c_1 + ..
// Parameters  sizes  c_0, c_1, ..
// Usage       {type: split, name: s, sizes: [8, 8]}, then {type: relu, from: s.1}
#include "framework/ops/concat/slice.h"
#include "layers/layer_types.h"

namespace convscope {
namespace {

class Split final : public MultiModule {
 public:
  explicit Split(std::vector<std::int64_t> sizes)
      : MultiModule(/*inputs=*/1), sizes_(std::move(sizes)) {}
  std::string kind() const override { return "split"; }

  Variables forward(const Variables& inputs) override {
    Variables out;
    std::int64_t first = 0;
    for (const std::int64_t size : sizes_) {
      out.push_back(slice(inputs[0], 1, first, size));
      first += size;
    }
    return out;
  }
  Shapes output_shapes(const Shapes& inputs) const override {
    const Shape& x = inputs[0];
    std::int64_t sum = 0;
    for (const std::int64_t size : sizes_) sum += size;
    CONVSCOPE_CHECK(x.rank() >= 2 && x[1] == sum, "split", "expected x [N,", sum,
                    ",..] because the sum of sizes is ", sum, ", got ", x);
    Shapes out(sizes_.size(), x);
    for (std::size_t i = 0; i < out.size(); ++i) out[i].set(1, sizes_[i]);
    return out;
  }

 private:
  std::vector<std::int64_t> sizes_;
};

}  // namespace

CONVSCOPE_REGISTER_LAYER("split", {.doc = "parts of its channels, as several results",
                                   .fields = {{.name = "sizes",
                                               .type = OptionType::integers,
                                               .doc = "number of channels of each result",
                                               .required = true,
                                               .min = 1,
                                               .max = 1 << 20}},
                                   .build = [](const Options& options, const Shape&,
                                               LayerContext&) -> std::shared_ptr<Module> {
                                     return std::make_shared<Split>(options.integers("sizes"));
                                   }})

}  // namespace convscope
