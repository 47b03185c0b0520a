// SPDX-License-Identifier: Apache-2.0
// ladder_data.cpp: the contents of files of `convscope bench conv2d --ladder NAME --json`, for
// plots.
#include "experiments/report/ladder_data.h"

#include <nlohmann/json.hpp>

#include "experiments/bench/ladder/ladder_report.h"
#include "experiments/report/json_fields.h"
#include "framework/check.h"
#include "framework/io/bytes.h"
#include "framework/io/former_names.h"
#include "framework/io/json_format.h"

namespace convscope {
namespace {

using Json = nlohmann::json;

double number_at(const Json& json, const char* name) {
  const Json& value = child(json, name);
  return value.is_number() ? value.get<double>() : 0;
}

Json parsed(const std::string& file) {
  return Json::parse(with_todays_names(text_if_there(file).value_or(""), file), nullptr, false);
}

bool is_ladder(const Json& json) {
  if (!json.is_object()) return false;
  const std::string format = text_at(json, "format");
  return format == kLadderFormat || is_other_version(format, kLadderFormat);
}

[[noreturn]] void broken(const std::string& file, const std::string& got) {
  fail(ErrorKind::kData, "plot",
       cat("expected a file of `convscope bench conv2d --ladder NAME --json`, got ", file,
           ", which has ", got));
}

LadderRung rung_of(const Json& json, const std::string& file) {
  LadderRung out{.name = text_at(json, "rung"),
                 .adds = text_at(json, "adds"),
                 .left_out = text_at(json, "reason"),
                 .median_ms = number_at(json, "median_ms"),
                 .gflops = number_at(json, "gflops_effective"),
                 .peak_percent = number_at(json, "peak_percent"),
                 .factor = number_at(json, "factor")};
  if (out.name.empty()) broken(file, "a rung without a name");
  return out;
}

}  // namespace

bool is_ladder_file(const std::string& file) { return is_ladder(parsed(file)); }

LadderSet read_ladders(const std::vector<std::string>& files) {
  LadderSet set;
  for (const std::string& file : files) {
    const Json json = parsed(file);
    if (!is_ladder(json)) broken(file, "another format; draw it by itself");
    const std::string problem = format_problem(text_at(json, "format"), {kLadderFormat});
    if (!problem.empty()) broken(file, problem);
    set.heads.push_back(bench_head(file, text_at(json, "format"),
                                   child(json, "complete") != Json(false),
                                   child(json, "machine").dump(), child(json, "settings").dump()));
    const Json machine = child(json, "machine");
    const Json settings = child(json, "settings");
    const std::string cpu = text_at(machine, "cpu");
    const std::string device = text_at(settings, "device");
    const double given = number_at(settings, "threads");  // a foreign file may have any number
    const long long threads = given >= 0 && given <= 1e6 ? static_cast<long long>(given) : 0;
    const std::string measured_on =
        cat(device, device == "cpu" && !cpu.empty() ? cat(": ", cpu) : "",
            device == "cpu" ? cat(", ", threads, threads == 1 ? " thread" : " threads") : "", ", ",
            text_at(settings, "cache"), " caches");
    const Json ladders = child(json, "ladders");
    if (!ladders.is_array() || ladders.empty()) broken(file, "no ladder");
    for (const Json& one : ladders) {
      if (!one.is_object()) broken(file, "a ladder without names");
      MeasuredLadder ladder{.name = text_at(one, "ladder"),
                            .problem = text_at(one, "problem"),
                            .direction = text_at(one, "direction"),
                            .measured_on = measured_on,
                            .peak_gflops = number_at(one, "peak_gflops"),
                            .total_factor = number_at(one, "total_factor"),
                            .rungs = {}};
      for (const Json& rung : child(one, "rungs")) {
        if (!rung.is_object()) broken(file, "a rung without names");
        ladder.rungs.push_back(rung_of(rung, file));
      }
      set.ladders.push_back(std::move(ladder));
    }
  }
  return set;
}

}  // namespace convscope
