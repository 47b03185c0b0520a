// SPDX-License-Identifier: Apache-2.0
// kept_rows.cpp: selects which rows of a file such as epochs.csv a run keeps when it resumes from a
// checkpoint.
#include "experiments/run_folder/files/kept_rows.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace convscope {
namespace {

constexpr std::int64_t kLongestRow = 1 << 16;  // rows of the program have at most 1 KiB

// Returns the row that ends before byte `end`, without its line end.
std::string row_before(std::ifstream& file, std::int64_t end) {
  const std::int64_t begin = std::max<std::int64_t>(0, end - kLongestRow);
  std::string text(static_cast<std::size_t>(end - begin), ' ');
  file.seekg(begin);
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) || text.empty()) return "";
  text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// Returns whether all rows before byte `counted` belong to the time before the checkpoint, and all
// rows after it to the time after the checkpoint.
bool is_between_rows(std::ifstream& file, std::int64_t size, std::int64_t counted,
                     const std::function<RowPlace(std::string_view)>& place_of) {
  if (counted > size) return false;
  char last = 0;
  file.seekg(counted - 1);
  if (!file.get(last) || last != '\n') return false;
  if (place_of(row_before(file, counted)) == RowPlace::after) return false;
  file.seekg(counted);
  std::string next;
  const bool is_whole = std::getline(file, next) && !file.eof();
  file.clear();
  return !is_whole || place_of(next) != RowPlace::before;
}

}  // namespace

RowPlace place_of_metrics_row(std::string_view row, std::int64_t epochs, std::int64_t steps) {
  const auto read = nlohmann::json::parse(row, nullptr, /*allow_exceptions=*/false);
  if (!read.is_object()) return RowPlace::unknown;
  // An evaluation belongs to the last step of its epoch and may follow a checkpoint of that step.
  const bool trains = read.value("split", nlohmann::json()) == "train";
  const nlohmann::json number = read.value(trains ? "step" : "epoch", nlohmann::json());
  if (!number.is_number_integer()) return RowPlace::unknown;
  return number.get<std::int64_t>() <= (trains ? steps : epochs) ? RowPlace::before
                                                                 : RowPlace::after;
}

RowPlace place_of_epoch_row(std::string_view row, std::int64_t epochs) {
  std::int64_t epoch = 0;
  const auto read = std::from_chars(row.data(), row.data() + row.size(), epoch);
  if (read.ec != std::errc{}) return RowPlace::unknown;
  return epoch <= epochs ? RowPlace::before : RowPlace::after;
}

KeptRows kept_rows(const std::string& path, std::int64_t counted,
                   const std::function<RowPlace(std::string_view)>& place_of) {
  std::error_code error;
  if (counted <= 0) return {};
  if (!std::filesystem::is_regular_file(path, error)) return {.as_counted = false};
  std::ifstream file(path, std::ios::binary);
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (!file || error) return {.as_counted = false};
  if (is_between_rows(file, size, counted, place_of)) return {.bytes = counted};
  file.seekg(0);
  KeptRows out{.as_counted = false};
  for (std::string row; std::getline(file, row);) {
    const RowPlace place = place_of(row);
    // If the last row is complete but has no line end, an editor may have removed the line end. A
    // truncated row counts as unknown.
    out.lacks_line_end = file.eof() && place == RowPlace::before;
    if (place == RowPlace::after || (file.eof() && !out.lacks_line_end)) break;
    out.bytes += static_cast<std::int64_t>(row.size()) + (out.lacks_line_end ? 0 : 1);
  }
  return out;
}

}  // namespace convscope
