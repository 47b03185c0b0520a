// SPDX-License-Identifier: Apache-2.0
// weight_format.cpp: how the weights of an operator are stored.
#include "framework/weight_format.h"

#include <charconv>

#include "framework/check.h"

namespace convscope {
namespace {

constexpr std::string_view kBlocks = "blocks";

// Reads a number and the delimiter `mark` from the front of the text and removes both. If `mark` is
// '\0', the text must end after the number. Returns false if the text does not begin like this.
bool take(std::string_view& text, char mark, std::int64_t& out) {
  const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || out < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(next - text.data()));
  if (mark == '\0') return text.empty();
  if (text.empty() || text.front() != mark) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string WeightFormat::text() const {
  return is_dense() ? "dense" : cat(kBlocks, block_rows, "x", block_columns, ":", blocks);
}

bool WeightFormat::parse(std::string_view text, WeightFormat& out) {
  out = {};
  if (text == "dense") return true;
  if (!text.starts_with(kBlocks)) return false;
  text.remove_prefix(kBlocks.size());
  out.kind = Kind::block_sparse;
  return take(text, 'x', out.block_rows) && take(text, ':', out.block_columns) &&
         take(text, '\0', out.blocks);
}

std::string WeightFormat::misfit(std::int64_t rows, std::int64_t columns) const {
  if (is_dense()) return "";
  if (block_rows < 1 || block_columns < 1 || rows % block_rows != 0 ||
      columns % block_columns != 0) {
    return cat("expects blocks that divide the ", rows, "x", columns, " matrix of weights, got ",
               block_rows, "x", block_columns);
  }
  const std::int64_t most = (rows / block_rows) * (columns / block_columns);
  if (blocks <= most) return "";
  return cat("expects at most ", most, " blocks of ", block_rows, "x", block_columns, " in a ",
             rows, "x", columns, " matrix of weights, got ", blocks);
}

}  // namespace convscope
