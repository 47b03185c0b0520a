// SPDX-License-Identifier: Apache-2.0
// moving_inputs.cpp: changes the inputs and the output of a timed call between its runs.
#include "experiments/bench/honest/moving_inputs.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace convscope {
namespace {

constexpr std::int64_t kPartOfTurn = 32, kSwapsOfSample = 8, kPoisonOfSample = 8;
constexpr std::int64_t kMaxSwaps = 1 << 14;  // about a millisecond
// The positions that are checked; older ones are dropped.
constexpr std::size_t kMaxPoisoned = 64;

std::uint64_t secret() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

// Zeros are not swapped, because they may be the padding of a channel block after the last channel.
bool is_zero(const unsigned char* at, std::size_t size) {
  return std::all_of(at, at + size, [](unsigned char byte) { return byte == 0; });
}

}  // namespace

MovingInputs::MovingInputs(const Operands& operands, const OperandSpecs& specs, bool weights)
    : random_(secret()) {
  if (operands.device().type != DeviceType::cpu) return;
  const auto array_of = [](const Operand& operand) {
    return Array{static_cast<unsigned char*>(operand.values.raw_data()), operand.values.numel(),
                 size_of(operand.values.dtype())};
  };
  for (std::size_t i = 0; i < specs.inputs.size() && i < 2; ++i) {
    const Operand& one = operands.in.at(i);
    if (!one.defined() || (specs.inputs[i].is_weights && !weights)) continue;
    if (one.values.numel() > 1) inputs_.push_back(array_of(one));
  }
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    const Operand& one = operands.out.at(i);
    // Every byte of an integer output is a valid value, so it cannot be marked as not written.
    if (!one.defined() || is_code(one.values.dtype())) continue;
    if (one.values.numel() > 0) outputs_.push_back(array_of(one));
  }
}

// splitmix64 (Steele, Lea, Flood 2014) takes a nanosecond. A fast generator is needed, because
// run() is inside the timed interval.
std::int64_t MovingInputs::below(std::int64_t count) {
  std::uint64_t z = random_ += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  const auto n = static_cast<std::uint64_t>(count);
  return static_cast<std::int64_t>(n >> 32 == 0 ? (z >> 32) * n >> 32 : z % n);
}

unsigned char* MovingInputs::place_in(const Array& array) {
  return array.data + static_cast<std::size_t>(below(array.count)) * array.size;
}

void MovingInputs::swap_in(const Array& array, std::int64_t how_many) {
  for (std::int64_t i = 0; i < how_many; ++i) {
    unsigned char* const a = place_in(array);
    unsigned char* const b = place_in(array);
    if (a == b || is_zero(a, array.size) || is_zero(b, array.size)) continue;
    std::swap_ranges(a, a + array.size, b);
  }
}
void MovingInputs::swap_some(std::int64_t how_many) {
  for (const Array& array : inputs_) swap_in(array, how_many);
}

void MovingInputs::poison(std::int64_t how_many) {
  for (const Array& array : outputs_) {
    for (std::int64_t i = 0; i < how_many; ++i) {
      unsigned char* const at = place_in(array);
      std::memset(at, 0xff, array.size);
      if (poisoned_.size() < kMaxPoisoned) {
        poisoned_.push_back(at);
      } else {
        poisoned_[next_] = at;
        next_ = (next_ + 1) % kMaxPoisoned;
      }
    }
  }
}

void MovingInputs::turn() {
  std::int64_t most = 0;
  for (const Array& array : inputs_) most = std::max(most, array.count);
  swap_some(std::clamp(most / kPartOfTurn, kSwapsOfSample, kMaxSwaps));
  poison(kPoisonOfSample);
}
void MovingInputs::sample() {
  swap_some(kSwapsOfSample);
  poison(kPoisonOfSample);
}
void MovingInputs::run() {
  if (!inputs_.empty()) swap_in(inputs_[runs_++ % inputs_.size()], 1);
  poison(1);
}

std::string MovingInputs::not_written() {
  std::string out;
  for (const unsigned char* const at : poisoned_) {
    for (const Array& array : outputs_) {
      const bool inside =
          at >= array.data && at < array.data + static_cast<std::size_t>(array.count) * array.size;
      const bool written =
          !std::all_of(at, at + array.size, [](unsigned char byte) { return byte == 0xff; });
      if (!inside || written || !out.empty()) continue;
      out = cat("a timed call did not write element ",
                (at - array.data) / static_cast<std::ptrdiff_t>(array.size), " of ", array.count,
                " of its output");
    }
  }
  poisoned_.clear();
  next_ = 0;
  return out;
}

}  // namespace convscope
