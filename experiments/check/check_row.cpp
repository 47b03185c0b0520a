// SPDX-License-Identifier: Apache-2.0
// check_row.cpp: the result of checking one algorithm, as a row.
#include "experiments/check/check_row.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "framework/io/json_text.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

std::string short_number(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);  // so that different f32 print differently
  return text;
}

std::string whole_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

// "takes kernels, pointwise, padding; not stride, groups"
std::string takes_text(const CheckRow& row) {
  std::vector<std::string> yes, no;
  for (const FeatureAnswer& feature : row.features) {
    (feature.takes ? yes : no).push_back(feature.name);
  }
  if (no.empty() || row.features.empty()) return "";
  return cat(yes.empty() ? "nothing" : join(yes), "; not ", join(no));
}

// Puts a mark before each line that the algorithm printed, so that no line looks like output of
// this program.
std::string quoted(const CheckRow& row) {
  if (row.output_bytes == 0) return "";
  std::string out = cat("note   it wrote ", row.output_bytes, " bytes to stdout and stderr:\n");
  constexpr int kLines = 4;
  std::size_t at = 0;
  int lines = 0;
  for (; at < row.output.size() && lines < kLines; ++lines) {
    const std::size_t end = std::min(row.output.find('\n', at), row.output.size());
    out += cat("     | ", row.output.substr(at, std::min<std::size_t>(end - at, 100)), "\n");
    at = end + 1;
  }
  return at < row.output.size() ? out + "     | ...\n" : out;
}

Json features_json(const std::vector<FeatureAnswer>& features) {
  Json out = Json::array();
  for (const FeatureAnswer& one : features) {
    out.push_back({{"feature", one.name},
                   {"takes", one.takes},
                   {"reason", one.reason.empty() ? Json() : Json(one.reason)}});
  }
  return out;
}
std::vector<FeatureAnswer> features_from(const Json& json) {
  std::vector<FeatureAnswer> out;
  for (const Json& one : json) {
    out.push_back({one.at("feature").get<std::string>(), one.at("takes").get<bool>(),
                   one.at("reason").is_null() ? "" : one.at("reason").get<std::string>()});
  }
  return out;
}

Json json_of(const CheckRow& row) {
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  return {{"plugin", text(row.plugin)},
          {"hash", text(row.hash)},
          {"algorithm", text(row.algorithm)},
          {"status", row.status},
          {"cause", text(row.cause)},
          {"first", text(row.first)},
          {"where", text(row.where)},
          {"again", text(row.again)},
          {"cases", row.cases},
          {"refused", row.refused},
          {"directions", row.directions},
          {"features", features_json(row.features)},
          {"unmet", features_json(row.unmet)},
          {"error_growth", row.error_growth > 0 ? Json(row.error_growth) : Json()},
          {"seconds", row.seconds},
          {"output_bytes", row.output_bytes},
          {"output", text(row.output)}};
}

std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string first_text(const FaultyCase& of) {
  return cat(name_of(of.direction), " of ", of.problem,
             !of.extra                            ? ""
             : of.direction == Direction::forward ? ", with a bias"
                                                  : ", accumulating",
             ", ", name_of(of.tier), ", ", name_of(of.isa), ", ", of.threads,
             of.threads == 1 ? " thread" : " threads");
}

std::string values_text(double got, double expected, double allowed) {
  return cat("got ", short_number(got), ", expected ", short_number(expected),
             allowed > 0 ? cat(", allowed error: ", short_number(allowed)) : "");
}

void require(const std::vector<std::string>& names, CheckRow& row) {
  std::vector<std::string> reasons;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(row.features, name, &FeatureAnswer::name);
    if (found == row.features.end() || found->takes) continue;
    row.unmet.push_back(*found);
    reasons.push_back(cat(name, ": it ", found->reason));
  }
  if (!row.passes() || row.unmet.empty()) return;
  row.status = "unmet";
  row.cause = cat("its results are right, but it refuses what is required: ", join(reasons, "; "));
}

void limit_error_growth(double& error_growth, const CheckSettings& settings) {
  if (settings.max_error_growth <= 0) return;
  error_growth = std::min(error_growth, settings.max_error_growth);
}

std::string check_text(const CheckRow& row) {
  const std::string takes = takes_text(row);
  const std::string rest = (takes.empty() ? "" : cat("takes  ", takes, "\n")) + quoted(row);
  if (row.passes()) {
    return cat(
        "ok     ", row.algorithm, ": ", row.cases, " cases of ", join(row.directions),
        " agree with the reference (", whole_seconds(row.seconds),
        row.refused > 0 ? cat("; ", row.refused, " more are refused by its supports())\n") : ")\n",
        rest);
  }
  const std::string name = row.algorithm.empty() ? row.plugin : row.algorithm;
  // The first word is only "wrong" for these two, because the cause says how the algorithm failed.
  // The table and the JSON name the status.
  const bool never_judged = row.status == "ended" || row.status == "timeout";
  const std::string verdict = never_judged ? "wrong" : row.status;
  const std::string space(verdict.size() < 6 ? 7 - verdict.size() : 2, ' ');
  std::string out = cat(verdict, space, name, ": ", row.cause, "\n");
  if (!row.first.empty()) out += cat("first  ", row.first, "\n");
  if (!row.where.empty()) out += cat("where  ", row.where, "\n");
  if (!row.again.empty()) out += cat("again  ", row.again, "\n");
  return out + rest;
}

std::string check_table(const std::vector<CheckRow>& rows) {
  std::vector<std::vector<std::string>> lines = {
      {"plug-in", "algorithm", "verdict", "cases", "seconds", "takes not"}};
  for (const CheckRow& row : rows) {
    std::vector<std::string> no;
    for (const FeatureAnswer& one : row.features) {
      if (!one.takes) no.push_back(one.name);
    }
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f", row.seconds);
    lines.push_back(
        {row.plugin.empty() ? "-" : std::filesystem::path(row.plugin).filename().string(),
         row.algorithm.empty() ? "-" : row.algorithm, row.status, std::to_string(row.cases),
         seconds, no.empty() ? "-" : join(no, ",")});
  }
  std::vector<std::size_t> widths(lines[0].size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out;
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      text += line[i];
      if (i + 1 < line.size()) text += std::string(widths[i] - line[i].size() + 2, ' ');
    }
    out += text + "\n";
  }
  const auto passed = std::ranges::count_if(rows, &CheckRow::passes);
  out += cat(passed, " of ", rows.size(), " pass\n");
  for (const CheckRow& row : rows) {
    if (!row.passes() || row.output_bytes > 0) out += "\n" + check_text(row);
  }
  return out;
}

std::string row_json(const CheckRow& row) { return dumped(json_of(row), -1); }

CheckRow row_from_json(const std::string& text) {
  const Json json = Json::parse(text);
  const auto word = [&](const char* key) {
    return json.at(key).is_null() ? std::string() : json.at(key).get<std::string>();
  };
  return {
      .plugin = word("plugin"),
      .hash = word("hash"),
      .algorithm = word("algorithm"),
      .status = word("status"),
      .cause = word("cause"),
      .first = word("first"),
      .where = word("where"),
      .again = word("again"),
      .cases = json.at("cases").get<std::int64_t>(),
      .refused = json.at("refused").get<std::int64_t>(),
      .directions = json.at("directions").get<std::vector<std::string>>(),
      .features = features_from(json.at("features")),
      .unmet = features_from(json.at("unmet")),
      .error_growth = json.at("error_growth").is_null() ? 0 : json.at("error_growth").get<double>(),
      .seconds = json.at("seconds").get<double>(),
      .output = word("output"),
      .output_bytes = json.at("output_bytes").get<std::int64_t>()};
}

std::string check_json(const std::vector<CheckRow>& rows, const CheckSettings& settings,
                       bool complete) {
  const auto positive = [](double value) { return value > 0 ? Json(value) : Json(); };
  Json list = Json::array();
  for (const CheckRow& row : rows) list.push_back(json_of(row));
  const auto passed = std::ranges::count_if(rows, &CheckRow::passes);
  const Json out = {{"format", "convscope check 1"},
                    {"settings",
                     {{"operation", settings.operation},
                      {"quick", settings.quick},
                      {"problem", settings.problem.empty() ? Json() : Json(settings.problem)},
                      {"require", settings.require},
                      {"timeout", positive(settings.timeout)},
                      {"max_error_growth", positive(settings.max_error_growth)}}},
                    {"rows", list},
                    {"passed", passed},
                    {"failed", static_cast<std::int64_t>(rows.size()) - passed},
                    {"complete", complete}};
  return dumped(out, 1) + "\n";
}

}  // namespace convscope
