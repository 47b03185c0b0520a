// SPDX-License-Identifier: Apache-2.0
// axis.cpp: converts values to pixels, with ticks at round numbers.
#include "experiments/report/chart/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

// Larger or smaller values are not drawn, because differences and quotients of them would overflow.
// No plot needs them.
constexpr double kLargest = 1e150, kSmallest = 1e-150;

double round_step(double raw) {
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double rest = raw / power;
  return power * (rest <= 1.0001 ? 1.0 : rest <= 2.0001 ? 2.0 : rest <= 5.0001 ? 5.0 : 10.0);
}

// Returns the largest of 1, 2 and 5 times a power of ten that is not above `value`.
double round_below(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  const double rest = value / power;
  return power * (rest >= 4.9999 ? 5.0 : rest >= 1.9999 ? 2.0 : 1.0);
}

// Widens the range [low, high] if all values are equal or differ only by rounding.
void widen(double& low, double& high) {
  if (high - low > 1e-9 * std::max(std::abs(low), std::abs(high))) return;
  const double pad = low == 0 && high == 0 ? 1.0 : std::max(std::abs(low), std::abs(high)) * 0.1;
  low -= pad;
  high += pad;
}

// Widens [low, high] around its middle to the smallest span that the axis allows, but not beyond
// the limits of the axis.
void widen_to_least(const AxisSpec& spec, bool log, double& low, double& high) {
  if (log) {
    const double missing = spec.least_ratio / (high / low);
    if (missing <= 1) return;
    low /= std::sqrt(missing);
    high *= std::sqrt(missing);
    return;
  }
  const double missing = spec.least_span - (high - low);
  if (missing <= 0) return;
  low -= missing / 2;
  high += missing / 2;
  if (high > spec.highest) {
    low -= high - spec.highest;
    high = spec.highest;
  }
  if (low < spec.lowest) {
    high = std::min(high + spec.lowest - low, spec.highest);
    low = spec.lowest;
  }
}

}  // namespace

void Extent::add(double value) {
  if (!std::isfinite(value) || std::abs(value) > kLargest) return;
  low = any ? std::min(low, value) : value;
  high = any ? std::max(high, value) : value;
  any = true;
}

std::vector<double> nice_ticks(double low, double high, int wanted, bool whole_numbers) {
  widen(low, high);
  double step = round_step((high - low) / std::max(wanted, 1));
  if (whole_numbers) step = std::max(step, 1.0);
  const double first = std::floor(low / step + 1e-9);
  const double last = std::ceil(high / step - 1e-9);
  std::vector<double> ticks;
  for (double i = first; i <= last; i += 1) ticks.push_back(i == 0 ? 0.0 : i * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high, int wanted) {
  if (!(high > low * 1.0000001)) {
    low /= 1.5;
    high *= 1.5;
  }
  std::vector<double> ticks;
  if (high / low < 5) {  // less than a decade: 1, 2, 5 would give too few
    for (double tick : nice_ticks(low, high, wanted)) {
      if (tick > 0) ticks.push_back(tick);
    }
    // The next tick below would be 0, which a logarithmic axis cannot show. A round number below
    // `low` replaces it.
    if (ticks.front() > low) ticks.insert(ticks.begin(), round_below(low));
    return ticks;
  }
  const double first = std::floor(std::log10(low) + 1e-9);
  const double last = std::ceil(std::log10(high) - 1e-9);
  const bool parts = 3 * (last - first) <= 2 * wanted;  // 1, 2 and 5 of each decade
  const double stride = std::max(1.0, std::ceil((last - first) / std::max(wanted, 1)));
  for (double decade = first; decade <= last + stride - 1 + 1e-9; decade += stride) {
    for (double factor : {1.0, 2.0, 5.0}) {
      if (factor == 1.0 || parts) ticks.push_back(factor * std::pow(10.0, decade));
    }
  }
  // The axis begins at the last tick below the data and ends at the first tick above them.
  while (ticks.size() > 2 && ticks[1] <= low * (1 + 1e-9)) ticks.erase(ticks.begin());
  while (ticks.size() > 2 && ticks[ticks.size() - 2] >= high * (1 - 1e-9)) ticks.pop_back();
  return ticks;
}

std::vector<std::string> tick_texts(const std::vector<double>& ticks, bool log) {
  double step = 0, largest = 0;
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    largest = std::max(largest, std::abs(ticks[i]));
    if (i > 0) {
      const double gap = ticks[i] - ticks[i - 1];
      step = step == 0 ? gap : std::min(step, gap);
    }
  }
  const int decimals =
      step > 0 ? std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9))) : 0;
  std::vector<std::string> out;
  for (double tick : ticks) {
    const double size = std::abs(tick);
    if (tick != 0 && (log ? size < 1e-3 : largest < 1e-4)) {
      std::string text = fmt::format("{:.3g}", tick);
      for (const char* zero : {"e-0", "e+0"}) {
        if (const auto at = text.find(zero); at != std::string::npos) text.erase(at + 2, 1);
      }
      out.push_back(text);
    } else if (largest >= 1e4 && size >= 1e3 && size < 1e15) {
      const char* unit = size >= 1e12 ? "T" : size >= 1e9 ? "G" : size >= 1e6 ? "M" : "k";
      const double scale = size >= 1e12 ? 1e12 : size >= 1e9 ? 1e9 : size >= 1e6 ? 1e6 : 1e3;
      out.push_back(fmt::format("{:.4g}{}", tick / scale, unit));
    } else if (log || largest >= 1e15) {
      out.push_back(number_text(tick, 4));
    } else {
      out.push_back(fmt::format("{:.{}f}", tick, decimals));
    }
  }
  return out;
}

Axis::Axis(const AxisSpec& spec, Extent extent, int wanted_ticks, double from_pixel,
           double to_pixel)
    : log_(spec.log && extent.any && extent.low > kSmallest), from_(from_pixel), to_(to_pixel) {
  double low = std::max(extent.low, spec.lowest);
  double high = std::min(extent.high, spec.highest);
  if (!extent.any || high < low) {
    low = 0;
    high = 1;
  }
  if (spec.from_zero && !log_) {
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  }
  if (extent.any) widen_to_least(spec, log_, low, high);
  ticks_ = log_ ? log_ticks(low, high, wanted_ticks)
                : nice_ticks(low, high, wanted_ticks, spec.whole_numbers);
  std::erase_if(ticks_,
                [&](double t) { return t < spec.lowest - 1e-9 || t > spec.highest + 1e-9; });
  if (log_ && spec.whole_numbers) {
    std::vector<double> whole = ticks_;
    std::erase_if(whole, [](double t) { return std::abs(t - std::round(t)) > 1e-9 * t; });
    if (whole.size() >= 2 && whole.front() <= low * (1 + 1e-9) &&
        whole.back() >= high * (1 - 1e-9)) {
      ticks_ = std::move(whole);
    }
  }
  low_ = ticks_.empty() ? low : std::min(low, ticks_.front());
  high_ = ticks_.empty() ? high : std::max(high, ticks_.back());
  if (!(high_ > low_)) high_ = low_ + 1;
  texts_ = tick_texts(ticks_, log_);
}

double Axis::scaled(double value) const {
  const double clamped = std::clamp(value, low_, high_);
  if (!log_) return (clamped - low_) / (high_ - low_);
  return std::log(clamped / low_) / std::log(high_ / low_);
}

double Axis::pixel(double value) const { return from_ + scaled(value) * (to_ - from_); }

bool Axis::can_show(double value) const {
  return std::isfinite(value) && std::abs(value) <= kLargest && (!log_ || value > 0);
}

}  // namespace convscope
