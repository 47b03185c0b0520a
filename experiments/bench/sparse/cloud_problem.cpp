// SPDX-License-Identifier: Apache-2.0
// cloud_problem.cpp: a sparse convolution as a line of text.
#include "experiments/bench/sparse/cloud_problem.h"

#include <algorithm>
#include <charconv>

#include "experiments/run_folder/user_words.h"
#include "framework/registry.h"

namespace convscope {
namespace {

constexpr const char* kOperation = "sparse_conv";
constexpr SparseKind kKinds[] = {SparseKind::submanifold, SparseKind::strided, SparseKind::inverse};

const std::vector<std::string>& keys() {
  static const std::vector<std::string> kKeys = {
      "cloud",  "sites", "seed",     "density", "batch", "kind",  "kernel",
      "stride", "pad",   "dilation", "c",       "k",     "dtype", "precision"};
  return kKeys;
}

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  fail(kOperation,
       cat("expected a problem like 'cloud=shell,sites=100000,seed=1,kernel=3x3x3,c=64,k=64', ",
           why, ", got '", text, "'"));
}

// Returns the element of `all` with that name.
template <class Named, class All>
Named named(std::string_view text, std::string_view key, std::string_view value, const All& all) {
  std::vector<std::string> names;
  for (const Named one : all) {
    if (name_of(one) == value) return one;
    names.emplace_back(name_of(one));
  }
  refuse(text, cat("but '", key, "' is one of ", join(names), ", not '", value, "'",
                   did_you_mean(std::string(value), names)));
}

template <class Number>
Number number_of(std::string_view text, std::string_view key, std::string_view value) {
  Number out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc() || end != value.data() + value.size() || value.empty()) {
    refuse(text, cat("but '", key, "=", value, "' is not a number"));
  }
  return out;
}

// Parses one number for all axes (3), or one for each axis (1x3x3). A 2-D text leaves to[0]
// unchanged.
void set_axes(std::string_view text, std::string_view key, std::string_view value, int rank,
              std::array<std::int64_t, 3>& to) {
  std::vector<std::int64_t> values;
  for (std::string_view rest = value;;) {
    const std::size_t cross = rest.find('x');
    values.push_back(number_of<std::int64_t>(text, key, rest.substr(0, cross)));
    if (cross == std::string_view::npos) break;
    rest = rest.substr(cross + 1);
  }
  const auto axes = static_cast<std::size_t>(rank);
  if (values.size() != 1 && values.size() != axes) {
    refuse(text, cat("but '", key, "' takes one number or ", rank,
                     ", one for each axis of the cloud, not '", value, "'"));
  }
  for (std::size_t d = 0; d < axes; ++d) to[3 - axes + d] = values[values.size() == 1 ? 0 : d];
}

using Words = std::vector<std::pair<std::string, std::string_view>>;

Words words_of(std::string_view text) {
  Words out;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) refuse(text, cat("but '", word, "' has no '='"));
    const std::string key(word.substr(0, equals));
    if (std::ranges::count(keys(), key) == 0) {
      const std::string near = nearest_word(key, keys());
      refuse(text, cat("but there is no key '", key, "'",
                       near.empty() ? cat(" (keys: ", join(keys()), ")")
                                    : cat("; did you mean '", near, "'?")));
    }
    if (std::ranges::count(out, key, &Words::value_type::first) > 0) {
      refuse(text, cat("but '", key, "' occurs twice"));
    }
    out.emplace_back(key, word.substr(equals + 1));
    if (comma == std::string_view::npos) return out;
    rest = rest.substr(comma + 1);
  }
}

}  // namespace

CloudProblem CloudProblem::parse(std::string_view text) {
  const Words words = words_of(text);
  const auto find = [&](const char* key) {
    const auto at = std::ranges::find(words, key, &Words::value_type::first);
    return at == words.end() ? nullptr : &at->second;
  };
  // These keys have no defaults, because a forgotten key would then define another problem than
  // intended.
  for (const char* key : {"cloud", "sites", "kernel", "c", "k"}) {
    if (find(key) == nullptr) refuse(text, cat("but '", key, "' has no default"));
  }
  CloudProblem out;
  const auto whole = [&](const char* key, std::int64_t& to) {
    if (find(key) != nullptr) to = number_of<std::int64_t>(text, key, *find(key));
  };
  out.cloud.shape = named<CloudShape>(text, "cloud", *find("cloud"), kCloudShapes);
  whole("sites", out.cloud.sites);
  whole("seed", out.cloud.seed);
  whole("batch", out.cloud.batch);
  whole("c", out.c);
  whole("k", out.k);
  if (find("density") != nullptr) {
    if (out.cloud.shape != CloudShape::random) {
      refuse(text, cat("but 'density' belongs to cloud=random"));
    }
    out.cloud.density = number_of<double>(text, "density", *find("density"));
  }
  const int rank = out.cloud.rank();
  out.kernel.size = {1, 1, 1};
  const auto axes = [&](const char* key, std::array<std::int64_t, 3>& to) {
    if (find(key) != nullptr) set_axes(text, key, *find(key), rank, to);
  };
  axes("kernel", out.kernel.size);
  axes("stride", out.kernel.stride);
  axes("pad", out.kernel.padding);
  axes("dilation", out.kernel.dilation);
  const bool strides = find("stride") != nullptr || find("pad") != nullptr;
  out.kind = strides ? SparseKind::strided : SparseKind::submanifold;
  if (find("kind") != nullptr) out.kind = named<SparseKind>(text, "kind", *find("kind"), kKinds);
  if (out.kind == SparseKind::submanifold && strides) {
    refuse(text, "but a submanifold convolution takes neither stride nor padding");
  }
  if (find("dtype") != nullptr) {
    constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
    out.dtype = named<DType>(text, "dtype", *find("dtype"), kTypes);
  }
  if (find("precision") != nullptr) {
    constexpr MathMode kModes[] = {MathMode::f32, MathMode::tf32};
    out.math = named<MathMode>(text, "precision", *find("precision"), kModes);
  }
  out.check();
  return out;
}

std::string CloudProblem::map_text() const {
  const SparseKernel plain;
  const bool strides = kernel.stride != plain.stride || kernel.padding != plain.padding;
  const bool said = kind == (strides ? SparseKind::strided : SparseKind::submanifold);
  return cat(cloud.text(), said ? "" : cat(",kind=", name_of(kind)), ",",
             kernel.text(cloud.rank()));
}

std::string CloudProblem::text() const {
  std::string out = cat(map_text(), ",c=", c, ",k=", k);
  if (dtype != DType::f32) out += cat(",dtype=", name_of(dtype));
  if (math != MathMode::f32) out += cat(",precision=", name_of(math));
  return out;
}

void CloudProblem::check() const {
  cloud.check();
  CONVSCOPE_CHECK(c >= 1 && k >= 1, kOperation, "expected at least one channel, got c=", c,
                  " and k=", k);
  const bool sizes = std::ranges::all_of(kernel.size, [](std::int64_t s) { return s >= 1; });
  CONVSCOPE_CHECK(sizes, kOperation, "expected kernel sizes of at least 1, got ",
                  kernel.text(cloud.rank()));
  // The remaining checks of the kernel do not depend on the sites, so an empty set of sites is
  // enough.
  const SiteGrid grid{cloud.rank(), 1, {cloud.rank() == 3 ? 64 : 1, 64, 64}};
  map(std::make_shared<const SparseSites>(std::vector<std::uint64_t>{}, grid));
}

SharedMap CloudProblem::map() const { return map(cloud_sites(cloud)); }

SharedMap CloudProblem::map(const SharedSites& sites) const {
  if (kind == SparseKind::submanifold) return SparseMap::submanifold(sites, kernel);
  const SharedMap strided = SparseMap::strided(sites, kernel);
  return kind == SparseKind::strided ? strided : SparseMap::inverse(strided);
}

SparseConvProblem CloudProblem::on(const SharedMap& map) const {
  SparseConvProblem out{.map = map, .c = c, .k = k, .dtype = dtype, .math = math};
  out.check();
  return out;
}

}  // namespace convscope
