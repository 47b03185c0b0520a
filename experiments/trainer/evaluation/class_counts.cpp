// SPDX-License-Identifier: Apache-2.0
// class_counts.cpp: counts an evaluation by class.
#include "experiments/trainer/evaluation/class_counts.h"

#include <algorithm>
#include <cmath>

#include "experiments/report/text_table.h"
#include "framework/check.h"
#include "layers/losses/class_rows.h"

namespace convscope {
namespace {

constexpr std::int64_t kTop = 5;

struct Ranked {
  std::int64_t predicted = 0;  // class of the largest score
  std::int64_t before = 0;     // number of classes that rank before the label
};

// The score of class k is scores[k * stride].
template <class T>
Ranked ranked(const T* scores, std::int64_t stride, std::int64_t classes, std::int64_t label) {
  Ranked out;
  const T own = scores[label * stride];
  for (std::int64_t k = 0; k < classes; ++k) {
    const T score = scores[k * stride];
    if (score > scores[out.predicted * stride]) out.predicted = k;
    const bool is_after = score < own || (score == own && k >= label);
    if (!is_after && k != label) ++out.before;  // all, if own is not a number
  }
  return out;
}

template <class T>
void add_rows(ClassCounts& counts, const Tensor& scores, const Tensor& labels) {
  const std::int64_t classes = counts.classes, pixels = scores.shape().stride(1);
  for (std::int64_t n = 0; n < labels.numel(); ++n) {
    const std::int64_t label = labels.data<std::int32_t>()[n];
    const T* const first = scores.data<T>() + n / pixels * classes * pixels + n % pixels;
    const Ranked row = ranked(first, pixels, classes, label);
    if (row.before < kTop) ++counts.in_top5;
    if (!counts.matrix.empty()) {
      ++counts.matrix[static_cast<std::size_t>(label * classes + row.predicted)];
    }
  }
}

}  // namespace

void ClassCounts::add(const Tensor& scores, const Tensor& labels) {
  const int rank = scores.rank();
  CONVSCOPE_CHECK((rank == 2 || rank == 4) && labels.shape() == labels_shape(scores.shape()),
                  "class_counts",
                  "expected scores [N,K] and labels [N], or [N,K,H,W] and [N,H,W], ", "got ",
                  scores.shape(), " and ", labels.shape());
  if (classes == 0) {
    classes = scores.dim(1);
    has_pixels = rank == 4;
    if (classes <= kMaxClasses) matrix.assign(static_cast<std::size_t>(classes * classes), 0);
  }
  const Tensor here = scores.to(Device{}), true_class = labels.to(Device{});
  here.dtype() == DType::f64 ? add_rows<double>(*this, here, true_class)
                             : add_rows<float>(*this, here, true_class);
  samples += labels.numel();
}

ClassCounts ClassCounts::sum(ProcessGroup& group, bool counts) const {
  ClassCounts out;
  out.classes = std::llround(group.most(static_cast<double>(classes)));
  out.has_pixels = group.most(has_pixels ? 1 : 0) > 0;
  if (out.classes == 0) return out;
  const std::int64_t cells = out.classes <= kMaxClasses ? out.classes * out.classes : 0;
  std::vector<double> values(static_cast<std::size_t>(cells) + 2);
  if (counts && classes > 0) {
    std::ranges::copy(matrix, values.begin());
    values[values.size() - 2] = static_cast<double>(samples);
    values[values.size() - 1] = static_cast<double>(in_top5);
  }
  group.sum(values.data(), static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size() - 2; ++i) out.matrix.push_back(std::llround(values[i]));
  out.samples = std::llround(values[values.size() - 2]);
  out.in_top5 = std::llround(values[values.size() - 1]);
  return out;
}

std::optional<double> ClassCounts::top5_accuracy() const {
  if (classes <= kTop || samples == 0) return std::nullopt;
  return 100.0 * static_cast<double>(in_top5) / static_cast<double>(samples);
}

std::vector<double> ClassCounts::class_iou() const {
  std::vector<double> out;
  if (!has_pixels || matrix.empty()) return out;
  const auto at = [this](std::int64_t row, std::int64_t column) {
    return matrix[static_cast<std::size_t>(row * classes + column)];
  };
  for (std::int64_t k = 0; k < classes; ++k) {
    std::int64_t in_union = -at(k, k);
    for (std::int64_t other = 0; other < classes; ++other) in_union += at(k, other) + at(other, k);
    out.push_back(
        in_union == 0 ? -1 : 100.0 * static_cast<double>(at(k, k)) / static_cast<double>(in_union));
  }
  return out;
}

std::string ClassCounts::csv(const std::vector<std::string>& names) const {
  const auto name = [&](std::int64_t k) {
    return std::ssize(names) == classes ? csv_quoted(names[static_cast<std::size_t>(k)]) : cat(k);
  };
  std::string out = "true_class";
  for (std::int64_t k = 0; k < classes; ++k) out += cat(",", name(k));
  for (std::int64_t row = 0; row < classes; ++row) {
    out += cat("\n", name(row));
    for (std::int64_t k = 0; k < classes; ++k) {
      out += cat(",", matrix[static_cast<std::size_t>(row * classes + k)]);
    }
  }
  return out + "\n";
}

}  // namespace convscope
