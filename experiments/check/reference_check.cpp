// SPDX-License-Identifier: Apache-2.0
// reference_check.cpp: numbers and comparisons of the check against `reference`.
#include "experiments/check/reference_check.h"

namespace convscope {
namespace {

// Returns "[0,2,0,4]" for element `at` of a row-major array.
std::string place_in(const Shape& shape, std::int64_t at) {
  std::vector<std::string> places;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    places.insert(places.begin(), std::to_string(at % shape[axis]));
    at /= shape[axis];
  }
  return cat("[", join(places, ","), "]");
}

}  // namespace

Tensor tier_numbers(const Shape& shape, DType type, matrix::Tier tier, std::uint64_t stream) {
  constexpr std::uint64_t kSeed = 7;
  Tensor out = Tensor::empty(shape, DType::f32);
  matrix::TierNumbers numbers(tier, Generator(kSeed, stream));
  for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = numbers.next();
  return out.to(type);
}

ReferenceFault fault_of_values(const std::vector<std::string>& names,
                               const std::vector<Tensor>& got, const std::vector<Tensor>& expected,
                               const std::vector<double>& allowed) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::int64_t first = -1, wrong = 0;
    for (std::int64_t j = 0; j < got[i].numel(); ++j) {
      const double value = got[i].at(j), right = expected[i].at(j);
      const bool agrees =
          std::isnan(right) ? std::isnan(value) : std::abs(value - right) <= allowed[i];
      if (agrees) continue;
      if (wrong++ == 0) first = j;
    }
    if (wrong == 0) continue;
    return {.sentence = cat(names[i], " differs from the result of the algorithm reference in ",
                            wrong, " of ", got[i].numel(), " elements",
                            allowed[i] > 0 ? " by more than both error bounds allow" : ""),
            .where = cat(names[i], place_in(got[i].shape(), first), ": ",
                         values_text(got[i].at(first), expected[i].at(first), allowed[i]))};
  }
  return {};
}

}  // namespace convscope
