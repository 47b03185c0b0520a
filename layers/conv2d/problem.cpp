// SPDX-License-Identifier: Apache-2.0
// problem.cpp: the description of a 2-d convolution: its text form, checks and operands.
#include "layers/conv2d/problem.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "framework/io/former_names.h"
#include "framework/registry.h"
#include "layers/conv2d/problem_text.h"

namespace convscope {
namespace {

constexpr const char* kOperation = "conv2d";

// Sizes have an upper limit so that no product of two sizes and a byte size overflows 2^63.
constexpr std::int64_t kLargestSize = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kLargestCount = std::int64_t{1} << 58;

void check_range(std::string_view name, std::int64_t value, std::int64_t least) {
  CONVSCOPE_CHECK(value >= least && value <= kLargestSize, kOperation, "expected ", name, " of ",
                  least, " to ", kLargestSize, ", got ", value);
}

void check_count(std::string_view name, const Shape& shape) {
  CONVSCOPE_CHECK(shape.numel() <= kLargestCount, kOperation, "expected ", name,
                  " with at most 2^58 elements, got ", shape);
}

void check_fits(std::string_view axis, std::int64_t size, std::int64_t before, std::int64_t after,
                std::int64_t kernel, std::int64_t dilation) {
  const std::int64_t reach = dilation * (kernel - 1) + 1;
  CONVSCOPE_CHECK(reach <= size + before + after, kOperation, "expected a kernel that fits the ",
                  "padded image, got a kernel ", axis, " of ", kernel, " with dilation ", dilation,
                  " (reach ", reach, ") on an image ", axis, " of ", size, " with padding ", before,
                  " and ", after);
}

// The keys of the text form, in order.
const std::vector<std::string>& keys() {
  static const std::vector<std::string> kKeys = {
      "n",   "c",        "h",      "w",     "k",         "r",     "s",       "stride",
      "pad", "dilation", "groups", "dtype", "precision", "types", "weights", "layout"};
  return kKeys;
}

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  fail(kOperation, cat("expected a problem like 'n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1', ",
                       why, ", got '", text, "'"));
}

std::vector<std::int64_t> parse_numbers(std::string_view text, std::string_view key,
                                        std::string_view value) {
  std::vector<std::int64_t> out;
  const char* at = value.data();
  const char* const end = at + value.size();
  for (;;) {
    std::int64_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (next != end && *next != 'x')) {
      refuse(text, cat("but '", key, "=", value, "' is not a number or numbers joined by 'x'"));
    }
    out.push_back(number);
    if (next == end) return out;
    at = next + 1;
  }
}

void set_key(Conv2dProblem& problem, std::string_view text, std::string_view key,
             std::string_view value) {
  if (key == "dtype") {
    for (int i = 0; i < kDTypeCount; ++i) {
      if (name_of(static_cast<DType>(i)) == value) {
        problem.dtype = static_cast<DType>(i);
        return;
      }
    }
    refuse(text, cat("but '", value, "' is not an element type"));
  }
  if (key == "precision") {
    if (value != "f32" && value != "tf32") {
      refuse(text, cat("but 'precision' is f32 or tf32, not '", value, "'"));
    }
    problem.math = value == "tf32" ? MathMode::tf32 : MathMode::f32;
    return;
  }
  if (key == "types") {
    OperandTypes types;
    if (!OperandTypes::parse(value, types)) {
      refuse(text, cat("but 'types' is four element types like i8:i8:i32:f32, not '", value, "'"));
    }
    problem.types = types;
    problem.dtype = types.x;
    return;
  }
  if (key == "weights") {
    if (!WeightFormat::parse(value, problem.weight_format)) {
      refuse(text, cat("but 'weights' is dense or like blocks4x1:128, not '", value, "'"));
    }
    return;
  }
  if (key == "layout") {
    for (const ImageLayouts& layout : kImageLayouts) {
      if (name_of(layout) == accepted_name(value)) {
        problem.layout = layout;
        return;
      }
    }
    refuse(text, cat("but 'layout' is nchw, nchw16c, nchw:nchw16c or nhwc, not '", value, "'"));
  }
  const std::vector<std::int64_t> v = parse_numbers(text, key, value);
  const auto one = [&] {
    if (v.size() != 1) refuse(text, cat("but '", key, "' takes one number"));
    return v[0];
  };
  const auto two = [&](std::int64_t& a, std::int64_t& b) {
    if (v.size() > 2) refuse(text, cat("but '", key, "' takes one or two numbers"));
    a = v[0];
    b = v.back();
  };
  if (key == "n") problem.n = one();
  if (key == "c") problem.c = one();
  if (key == "h") problem.h = one();
  if (key == "w") problem.w = one();
  if (key == "k") problem.k = one();
  if (key == "r") problem.r = one();
  if (key == "s") problem.s = one();
  if (key == "groups") problem.groups = one();
  if (key == "stride") two(problem.stride_h, problem.stride_w);
  if (key == "dilation") two(problem.dilation_h, problem.dilation_w);
  if (key == "pad") {
    if (v.size() == 4) {
      problem.pad_top = v[0];
      problem.pad_bottom = v[1];
      problem.pad_left = v[2];
      problem.pad_right = v[3];
    } else {
      if (v.size() > 2) refuse(text, "but 'pad' takes one, two or four numbers");
      problem.pad_top = problem.pad_bottom = v[0];
      problem.pad_left = problem.pad_right = v.back();
    }
  }
}

std::string pair_text(std::int64_t a, std::int64_t b) { return a == b ? cat(a) : cat(a, "x", b); }

}  // namespace

double Conv2dProblem::nominal_flops() const {
  return 2.0 * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(p()) *
         static_cast<double>(q()) * static_cast<double>(c_per_group()) * static_cast<double>(r) *
         static_cast<double>(s);
}

double Conv2dProblem::nominal_bytes() const {
  const auto bytes = [](DType type, std::int64_t count) {
    return static_cast<double>(size_of(type)) * static_cast<double>(count);
  };
  const OperandTypes t = operand_types();
  const std::int64_t weights =
      weight_format.is_dense() ? w_shape().numel() : weight_format.stored_elements();
  return bytes(t.x, x_shape().numel()) + bytes(t.w, weights) + bytes(t.y, y_shape().numel());
}

OperandSpecs Conv2dProblem::operands(Direction direction) const {
  const OperandTypes t = operand_types();
  const OperandSpec x{.name = "x",
                      .desc = {.shape = x_shape(), .dtype = t.x, .layout = layout.x},
                      .has_zero_point = false,
                      .is_rounded = t.x == DType::f32 && is_code(t.w)};
  const OperandSpec filters{.name = "w",
                            .desc = {.shape = w_shape(), .dtype = t.w, .sparsity = weight_format},
                            .is_weights = true};
  // Random codes have a root mean square of about 3.4 (u8) and 1.7 (i8) (operands.cpp). This scale
  // makes almost all results fit into the codes of y.
  const auto size = [](DType type) { return type == DType::u8 ? 3.4 : is_code(type) ? 1.7 : 1; };
  const double terms = static_cast<double>(c_per_group()) * static_cast<double>(r * s);
  const OperandSpec y{.name = "y",
                      .desc = {.shape = y_shape(), .dtype = t.y, .layout = layout.y},
                      .has_zero_point = false,
                      .size = 1.5 * size(t.x) * size(t.w) * std::sqrt(terms)};
  if (direction == Direction::forward) return {{x, filters}, {y}};
  if (direction == Direction::backward_data) return {{y, filters}, {x}};
  return {{x, y}, {filters}};
}

void Conv2dProblem::set_integer_types(const OperandTypes& of) {
  types = of;
  dtype = of.x;
  layout = is_code(of.x) ? ImageLayouts(ActivationLayout::nchw16c) : kNchwToNchw16c;
}

void Conv2dProblem::check() const {
  check_range("a batch size N", n, 0);
  check_range("a channel count C", c, 1);
  check_range("an image height H", h, 1);
  check_range("an image width W", w, 1);
  check_range("an output channel count K", k, 1);
  check_range("a kernel height R", r, 1);
  check_range("a kernel width S", s, 1);
  check_range("a stride", stride_h, 1);
  check_range("a stride", stride_w, 1);
  check_range("a padding", pad_top, 0);
  check_range("a padding", pad_bottom, 0);
  check_range("a padding", pad_left, 0);
  check_range("a padding", pad_right, 0);
  check_range("a dilation", dilation_h, 1);
  check_range("a dilation", dilation_w, 1);
  check_range("groups", groups, 1);
  CONVSCOPE_CHECK(c % groups == 0 && k % groups == 0, kOperation,
                  "expected groups to divide both the input channels and the output channels, got ",
                  groups, " groups, ", c, " input channels and ", k, " output channels");
  check_fits("height", h, pad_top, pad_bottom, r, dilation_h);
  check_fits("width", w, pad_left, pad_right, s, dilation_w);
  check_count("x", x_shape());
  check_count("w", w_shape());
  check_count("y", y_shape());
  CONVSCOPE_CHECK(!types || types->x == dtype, kOperation,
                  "expected dtype to be the type of x when types are given, got ", name_of(dtype),
                  " and ", types ? types->text() : "");
  const std::string misfit = weight_format.misfit(k, c_per_group() * r * s);
  CONVSCOPE_CHECK(misfit.empty(), kOperation, "expected a fitting format of the weights; it ",
                  misfit);
}

std::string Conv2dProblem::text() const {
  std::string pad;
  if (pad_top != pad_bottom || pad_left != pad_right) {
    pad = cat(pad_top, "x", pad_bottom, "x", pad_left, "x", pad_right);
  } else {
    pad = pair_text(pad_top, pad_left);
  }
  return cat("n=", n, ",c=", c, ",h=", h, ",w=", w, ",k=", k, ",r=", r, ",s=", s,
             ",stride=", pair_text(stride_h, stride_w), ",pad=", pad,
             ",dilation=", pair_text(dilation_h, dilation_w), ",groups=", groups,
             dtype == DType::f32 ? "" : cat(",dtype=", name_of(dtype)),
             math == MathMode::f32 ? "" : cat(",precision=", name_of(math)),
             types ? cat(",types=", types->text()) : "",
             weight_format.is_dense() ? "" : cat(",weights=", weight_format.text()),
             layout == ActivationLayout::nchw ? "" : cat(",layout=", name_of(layout)));
}

std::string Conv2dProblem::kernel_text() const { return pair_text(r, s); }

Conv2dProblem parse_unchecked(std::string_view text) {
  Conv2dProblem problem;
  std::vector<std::string> seen;
  std::string_view rest = text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) refuse(text, cat("but '", word, "' has no '='"));
    const std::string key(word.substr(0, equals));
    bool known = false;
    for (const std::string& k : keys()) known = known || k == key;
    if (!known) {
      const std::string near = nearest_word(key, keys());
      refuse(text, cat("but there is no key '", key, "'",
                       near.empty() ? cat(" (keys: ", join(keys()), ")")
                                    : cat("; did you mean '", near, "'?")));
    }
    for (const std::string& k : seen) {
      if (k == key) refuse(text, cat("but '", key, "' occurs twice"));
    }
    seen.push_back(key);
    set_key(problem, text, key, word.substr(equals + 1));
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  return problem;
}

Conv2dProblem Conv2dProblem::parse(std::string_view text) {
  const Conv2dProblem problem = parse_unchecked(text);
  problem.check();
  return problem;
}

}  // namespace convscope
