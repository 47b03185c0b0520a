// SPDX-License-Identifier: Apache-2.0
// bench_sides.cpp: the timed rows of a benchmark's JSON file.
#include "experiments/compare/bench_sides.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "experiments/bench/ladder/ladder_report.h"
#include "experiments/bench/statistics.h"
#include "experiments/operators/operator_table.h"
#include "experiments/report/json_fields.h"
#include "experiments/run_folder/machine_load.h"
#include "framework/io/bytes.h"
#include "framework/io/former_names.h"
#include "framework/io/json_format.h"

namespace convscope {
namespace {

using Json = nlohmann::json;
using Names = std::vector<std::string>;

constexpr std::size_t kMaxBytes = std::size_t{256} << 20;  // a thousand rows have two million
constexpr std::size_t kMaxBlocks = 1000;                   // our own files hold some tens

std::string text_of(const Json& value) {
  return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
}

// Returns the number, or 0 if it is not positive and finite.
double time_of(const Json& value) {
  if (!value.is_number()) return 0;
  const double number = value.get<double>();
  return number > 0 && std::isfinite(number) ? number : 0;
}

[[noreturn]] void broken(const std::string& file, const std::string& got) {
  fail(ErrorKind::kData, "compare",
       cat("expected a file of `convscope bench ... --json`, got ", file, ", ", got));
}

// Returns the fields whose values together identify a row, in files of this kind.
Names keys_of(const std::string& kind) {
  if (kind == "net") return {"net", "mode", "batch", "image", "device", "threads"};
  if (kind == "sparse_net") {
    return {"cloud", "channels", "precision", "algorithm", "direction", "device", "threads"};
  }
  if (kind == "ladder") return {"ladder", "problem", "direction", "rung", "device", "threads"};
  return {"problem", "direction", "algorithm", "device", "threads"};
}

std::string kind_of(const Json& json, const std::string& file) {
  const std::string format = text_of(child(json, "format"));
  if (child(json, "ladders").is_array()) return "ladder";
  if (!child(json, "rows").is_array()) broken(file, "which has no list named rows");
  if (format.find("sparse_net") != std::string::npos) return "sparse_net";
  if (format.find("net") != std::string::npos) return "net";
  if (format == "-") return "conv2d";
  // The longest name, because deform_conv2d contains conv2d.
  std::string operation;
  for (const std::string& name : operator_table().names()) {
    if (format.find(name) != std::string::npos && name.size() > operation.size()) operation = name;
  }
  if (!operation.empty()) return operation;
  broken(file, cat("whose format is '", format, "'"));
}

// Files of the earliest versions have no format.
void check_format(const Json& json, const std::string& file) {
  const std::string format = text_of(child(json, "format"));
  if (format == "-") return;
  Names known = {kLadderFormat};
  for (const std::string& operation : operator_bench_formats()) known.push_back(operation);
  for (const char* what : {"net", "sparse_net"})
    known.push_back(cat("convscope bench ", what, " 1"));
  const std::string problem = format_problem(format, known);
  if (!problem.empty()) broken(file, cat("which has ", problem));
}

std::optional<double> number_of(const Json& value) {
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

class Reader {
 public:
  Reader(BenchSide& side, const Json& machine)
      : side_(side), others_(number_of(child(machine, "cores_of_others"))) {
    cores_ = count_at(machine, "cores");
    if (cores_ == 0) cores_ = count_at(child(machine, "peaks"), "cores");
    threads_ = count_at(machine, "threads");
  }

  // Adds a row. A field of its key that `row` lacks is read from the enclosing object `around`, and
  // otherwise from the settings of the file.
  void add(const Json& row, const Json& around, const Json& settings) {
    TimedRow out;
    for (const std::string& name : side_.key_names) {
      const Json* value = &child(row, name);
      if (value->is_null()) value = &child(around, name);
      if (value->is_null()) value = &child(settings, name);
      out.key.push_back(text_of(*value));
    }
    out.median_ms = time_of(child(row, "median_ms"));
    if (out.median_ms == 0) {
      ++side_.not_timed;
      return;
    }
    out.p10_ms = time_of(child(row, "p10_ms"));
    out.p90_ms = time_of(child(row, "p90_ms"));
    for (const Json& value : child(row, "block_medians_ms")) {
      const double time = time_of(value);
      if (time > 0 && out.blocks_ms.size() < kMaxBlocks) out.blocks_ms.push_back(time);
    }
    out.disturbed = disturbed(row, around, settings);
    const auto same = std::ranges::find(side_.rows, out.key, &TimedRow::key);
    if (same == side_.rows.end()) {
      side_.rows.push_back(std::move(out));
    } else {
      *same = std::move(out);
    }
  }

 private:
  // Returns whether other programs disturbed the row. The load is that of the row, or else of its
  // ladder; older files have only one load for all rows.
  bool disturbed(const Json& row, const Json& around, const Json& settings) const {
    const Json* device = &child(row, "device");
    if (device->is_null()) device = &child(settings, "device");
    const int own = count_at(row, "threads");
    const int threads = text_of(*device).starts_with("cuda") ? 1 : own > 0 ? own : threads_;
    std::optional<double> others = number_of(child(row, "cores_of_others"));
    if (!others) others = number_of(child(around, "cores_of_others"));
    return is_disturbed(others ? others : others_, threads, cores_);
  }

  BenchSide& side_;
  std::optional<double> others_;
  int cores_ = 0, threads_ = 0;
};

BenchSide side_of_file(const std::string& file) {
  const Json json = Json::parse(with_todays_names(read_text(file, kMaxBytes), file), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) broken(file, "which is not a JSON object");
  check_format(json, file);
  BenchSide side;
  side.given = file;
  side.files = {file};
  side.kind = kind_of(json, file);
  side.key_names = keys_of(side.kind);
  side.complete = child(json, "complete") != Json(false);
  const Json& settings = child(json, "settings");
  Reader reader(side, child(json, "machine"));
  for (const Json& row : child(json, "rows")) reader.add(row, Json(), settings);
  for (const Json& ladder : child(json, "ladders")) {
    for (const Json& row : child(ladder, "rungs")) reader.add(row, ladder, settings);
  }
  if (side.rows.empty()) broken(file, "in which nothing was timed");
  add_environment(side.environment, child(json, "machine").dump());
  if (settings.is_object()) {
    for (const auto& [key, value] : settings.items()) add_fact(side.settings, key, text_of(value));
  }
  return side;
}

// Adds another file to a side. Keeps only the rows that all files have, with the medians of all
// files.
void merge(BenchSide& side, const BenchSide& more) {
  if (more.kind != side.kind) {
    fail(ErrorKind::kInvalid, "compare",
         cat("expected files of one kind in ", side.files.front(), ",", more.given, ", got bench ",
             side.kind, " and bench ", more.kind));
  }
  side.files.push_back(more.given);
  side.not_timed += more.not_timed;
  side.complete = side.complete && more.complete;
  const auto lacks = [](const BenchSide& one, const TimedRow& row) {
    return std::ranges::count(one.rows, row.key, &TimedRow::key) == 0;
  };
  const auto drop = [&](const TimedRow& row) {
    if (std::ranges::count(side.dropped, row.key) == 0) side.dropped.push_back(row.key);
  };
  for (const TimedRow& row : more.rows) {
    if (lacks(side, row)) drop(row);
  }
  for (const TimedRow& row : side.rows) {
    if (lacks(more, row)) drop(row);
  }
  std::erase_if(side.rows, [&](const TimedRow& row) { return lacks(more, row); });
  for (TimedRow& row : side.rows) {
    const TimedRow& same = *std::ranges::find(more.rows, row.key, &TimedRow::key);
    row.files_ms.push_back(same.median_ms);
    row.disturbed = row.disturbed || same.disturbed;
  }
  for (const auto& [key, values] : more.settings) {
    for (const std::string& value : values) add_fact(side.settings, key, value);
  }
  for (const auto& [key, values] : more.environment) {
    for (const std::string& value : values) add_fact(side.environment, key, value);
  }
}

}  // namespace

Names files_in(const std::string& given) {
  std::error_code error;
  if (std::filesystem::exists(given, error)) return {given};
  Names out;
  for (std::size_t begin = 0; begin <= given.size();) {
    const std::size_t end = std::min(given.find(',', begin), given.size());
    if (end > begin) out.push_back(given.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

BenchSide read_bench_side(const std::string& given) {
  const Names files = files_in(given);
  BenchSide side = side_of_file(files.empty() ? given : files[0]);
  side.given = given;
  if (files.size() < 2) return side;
  for (TimedRow& row : side.rows) row.files_ms = {row.median_ms};
  for (std::size_t i = 1; i < files.size(); ++i) merge(side, side_of_file(files[i]));
  if (side.rows.empty()) broken(given, "which have no row in common");
  for (TimedRow& row : side.rows) row.median_ms = geometric_mean(row.files_ms);
  return side;
}

}  // namespace convscope
