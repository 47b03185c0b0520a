// SPDX-License-Identifier: Apache-2.0
// conv_sizes.h: the sizes of a convolution on the command line of `convscope op`: options and their
// values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "experiments/operators/op_call.h"
#include "layers/conv2d/conv2d.h"

namespace convscope {

// Parses "2" or "2,1": whole numbers joined by commas; `lengths` lists the allowed counts.
std::vector<std::int64_t> whole_numbers(const char* command, const char* option,
                                        const std::string& text,
                                        std::initializer_list<std::size_t> lengths);

struct ConvSizes {
  std::string stride = "1", padding = "0", dilation = "1";
  std::int64_t groups = 1;

  void add_options(CommandLine& app);
  // Returns the parameters. Errors begin with `command` ("op conv2d").
  Conv2dParams params(const char* command) const;
};

// A convolution of images x [N,C,H,W] by w, both of type f32 or f64.
template <class Problem>
class ConvOpCall : public OpCallOf<Problem> {
 public:
  explicit ConvOpCall(std::vector<OpArray> arrays)
      : OpCallOf<Problem>(std::move(arrays), "gradient of the output [N,K,P,Q]") {}

 protected:
  void add_options(CommandLine& app) override { sizes_.add_options(app); }
  // Throws unless x and w have one type that the files may have.
  Conv2dParams params() const {
    const Tensor &x = this->given("x"), &w = this->given("w");
    CONVSCOPE_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::f64, this->command(),
                    "expected x of type f32 or f64, got ", x.str());
    CONVSCOPE_CHECK(w.dtype() == x.dtype(), this->command(), "expected x and w of one type, got ",
                    x.str(), " and ", w.str());
    return sizes_.params(this->command());
  }

 private:
  ConvSizes sizes_;
};

}  // namespace convscope
