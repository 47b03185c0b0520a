// SPDX-License-Identifier: Apache-2.0
// bench_data.cpp: reads files of `convscope bench OPERATOR --json` for plots.
#include "experiments/report/bench_data.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "experiments/operators/operator_table.h"
#include "experiments/report/json_fields.h"
#include "framework/check.h"
#include "framework/io/bytes.h"
#include "framework/io/former_names.h"
#include "framework/io/json_format.h"
#include "framework/registry.h"
#include "layers/dispatch/algorithm.h"

namespace convscope {
namespace {

using Json = nlohmann::json;

constexpr const char* kOperation = "plot";

// Returns NaN when the number is missing, not a number, or below `least`.
double number_at(const Json& object, const char* key, double least = 0) {
  const Json& value = child(object, key);
  if (!value.is_number()) return std::nan("");
  const double number = value.get<double>();
  return number >= least ? number : std::nan("");
}

// Reads times and rates, for which 0 means not measured.
double positive_at(const Json& object, const char* key) {
  const double number = number_at(object, key);
  return number > 0 ? number : std::nan("");
}

double or_zero(double value) { return std::isfinite(value) ? value : 0; }

Peak peak_at(const Json& peaks, const char* key) {
  const Json& pair = child(peaks, key);
  return {or_zero(positive_at(pair, "one_thread")), or_zero(positive_at(pair, "all_threads"))};
}

// Returns nothing if the peak multiply-add rate is missing, because a roofline needs it.
std::optional<CpuPeaks> peaks_of(const Json& json) {
  CpuPeaks out;
  const double cores = number_at(json, "cores", 1);
  if (!(cores <= 1e6)) return std::nullopt;
  out.cores = static_cast<int>(cores);
  out.flops = peak_at(json, "flops_per_second");
  if (out.flops.one_thread <= 0 || out.flops.all_threads <= 0) return std::nullopt;
  out.l2_copy = peak_at(json, "l2_copy_bytes_per_second");
  out.l3_copy = peak_at(json, "l3_copy_bytes_per_second");
  out.dram_copy = peak_at(json, "dram_copy_bytes_per_second");
  out.int8 = peak_at(json, "int8_ops_per_second");  // missing in older files
  return out;
}

[[noreturn]] void broken(const std::string& file, const std::string& got) {
  fail(ErrorKind::kData, kOperation,
       cat("expected a file of ", operator_bench_commands(), " because ", file,
           " is not a folder of runs, got ", got));
}

std::optional<Direction> direction_named(const std::string& name) {
  for (const Direction direction : kDirections) {
    if (name_of(direction) == name) return direction;
  }
  return std::nullopt;
}

std::string text_of_file(const std::string& file) {
  try {
    return read_text(file, kMaxTextBytes);
  } catch (const Error& error) {
    fail(ErrorKind::kIo, kOperation,
         cat("expected a benchmark's JSON file that can be read, got ", file, ": ", error.what()));
  }
}

class Reader {
 public:
  explicit Reader(BenchSet& set) : set_(set) {}

  void read(const std::string& file) {
    file_ = file;
    const Json json = Json::parse(with_todays_names(text_of_file(file), file), nullptr, false);
    if (json.is_discarded()) broken(file, "text that is not JSON");
    check_format(json);
    if (!json.is_object() || !child(json, "rows").is_array()) {
      broken(file, "JSON without a list named rows");
    }
    if (child(json, "rows").empty()) {
      broken(file, "no row, so nothing was measured in it");
    }
    set_.heads.push_back(bench_head(file, text_at(json, "format"),
                                    child(json, "complete") != Json(false),
                                    child(json, "machine").dump(), child(json, "settings").dump()));
    for (const std::string& warning : set_.heads.back().warnings()) {
      set_.remarks.push_back(warning);
    }
    std::size_t again = 0, number = 0;
    for (const Json& row : json["rows"]) again += add_row(json, row, ++number) ? 0 : 1;
    if (again > 0) {
      set_.remarks.push_back(cat(file, ": ", again, again == 1 ? " row was" : " rows were",
                                 " measured before; the last time counts"));
    }
    for (const Json& one : child(json, "refusals")) add_refusal(json, one);
  }

 private:
  // Files of the earliest versions have no member "format".
  void check_format(const Json& json) const {
    const std::string format = text_at(json, "format");
    const std::string problem =
        format.empty() ? "" : format_problem(format, operator_bench_formats());
    if (!problem.empty()) broken(file_, problem);
  }

  // Returns false when the row replaces an earlier one.
  bool add_row(const Json& json, const Json& row, std::size_t number) {
    const auto need = [&](bool there, const char* what) {
      if (!there) broken(file_, cat("row ", number, " without ", what));
    };
    need(row.is_object(), "names");
    const std::optional<Direction> direction = direction_named(text_at(row, "direction"));
    const double threads = number_at(row, "threads", 1);
    need(!text_at(row, "problem").empty(), "a problem");
    need(direction.has_value(), "a direction");
    need(!text_at(row, "algorithm").empty(), "an algorithm");
    need(threads <= 1e6, "a number of threads");
    BenchedRow out;
    out.direction = *direction;
    out.algorithm = text_at(row, "algorithm");
    out.wrong = text_at(row, "wrong");
    out.median_ms = out.wrong.empty() ? positive_at(row, "median_ms") : std::nan("");
    need(!out.wrong.empty() || out.median_ms > 0, "a median_ms");
    out.problem = problem(text_at(row, "problem"));
    out.setting = setting(json, text_at(row, "device"), static_cast<int>(threads));
    if (BenchedProblem& its = set_.problems[out.problem]; its.cloud()) {
      const double flops = positive_at(row, "nominal_flops");
      const double bytes = positive_at(row, "nominal_bytes");
      need(flops > 0 && bytes > 0, "nominal_flops and nominal_bytes");
      its.set_nominal(flops, bytes);
    }
    // The effective rate follows from the time. The executed rate cannot be derived, so it stays
    // unknown when an older file does not store it.
    out.gflops_effective = set_.problems[out.problem].nominal_flops() / (out.median_ms * 1e6);
    out.gflops_executed = positive_at(row, "gflops_executed");
    out.workspace_bytes = number_at(row, "workspace_bytes");
    out.baseline_median_ms = positive_at(row, "baseline_median_ms");
    out.baseline_plain_median_ms = positive_at(row, "baseline_plain_median_ms");
    out.auto_choice = child(row, "auto_choice") == Json(true);
    const std::string version = text_at(row, "baseline_version");
    out.baseline = cat(text_at(row, "baseline"), version.empty() ? "" : " ", version);
    const auto same = std::ranges::find_if(set_.rows, [&](const BenchedRow& other) {
      return other.setting == out.setting && other.problem == out.problem &&
             other.direction == out.direction && other.algorithm == out.algorithm;
    });
    if (same != set_.rows.end()) {
      *same = std::move(out);
      return false;
    }
    set_.rows.push_back(std::move(out));
    return true;
  }

  // Adds the reason why an algorithm refused a problem. A damaged entry is skipped: the plot then
  // lacks only this reason.
  void add_refusal(const Json& json, const Json& one) {
    const std::optional<Direction> direction = direction_named(text_at(one, "direction"));
    const double threads = number_at(child(json, "settings"), "threads", 1);
    if (!direction || text_at(one, "problem").empty() || !(threads <= 1e6)) return;
    const std::string device = text_at(child(json, "settings"), "device");
    set_.refusals.push_back({.setting = setting(json, device, static_cast<int>(threads)),
                             .problem = problem(text_at(one, "problem")),
                             .direction = *direction,
                             .algorithm = text_at(one, "algorithm"),
                             .reason = text_at(one, "reason")});
  }

  std::size_t problem(const std::string& text) {
    const auto parsed = [&] {
      try {
        return BenchedProblem(text);
      } catch (const Error& error) {
        broken(file_, cat("the problem ", text, " (", error.what(), ")"));
      }
    }();
    const auto at = std::ranges::find(set_.problems, parsed);
    if (at == set_.problems.end()) {
      set_.problems.push_back(parsed);
      return set_.problems.size() - 1;
    }
    return static_cast<std::size_t>(at - set_.problems.begin());
  }

  std::size_t setting(const Json& json, const std::string& device, int threads) {
    const Json& machine = child(json, "machine");
    const Json& settings = child(json, "settings");
    const std::string weights = text_at(settings, "weights");
    BenchSetting out{.device = device.empty() ? "cpu" : device,
                     .isa = text_at(machine, "isa"),
                     .cpu = text_at(machine, "cpu"),
                     .cache = text_at(settings, "cache"),
                     .clock = text_at(settings, "clock"),
                     .weights = weights.empty() ? "once" : weights,  // default of older files
                     .threads = threads};
    const auto key = [](const BenchSetting& s) {
      return std::tie(s.device, s.isa, s.cpu, s.cache, s.clock, s.weights, s.threads);
    };
    for (std::size_t i = 0; i < set_.settings.size(); ++i) {
      if (key(set_.settings[i]) == key(out)) return i;
    }
    out.peaks = peaks_of(child(machine, "peaks"));
    set_.settings.push_back(std::move(out));
    return set_.settings.size() - 1;
  }

  BenchSet& set_;
  std::string file_;
};

template <typename Value>
bool differs(const std::vector<BenchSetting>& settings, Value BenchSetting::*value) {
  return std::ranges::any_of(settings,
                             [&](const BenchSetting& s) { return s.*value != settings[0].*value; });
}

void name_settings(std::vector<BenchSetting>& settings) {
  const bool device = differs(settings, &BenchSetting::device);
  const bool isa = differs(settings, &BenchSetting::isa);
  const bool cpu = differs(settings, &BenchSetting::cpu);
  const bool cache = differs(settings, &BenchSetting::cache);
  const bool clock = differs(settings, &BenchSetting::clock);
  const bool weights = differs(settings, &BenchSetting::weights);
  for (BenchSetting& s : settings) {
    s.label = cat(s.threads, s.threads == 1 ? " thread" : " threads");
    if (isa) s.label += ", " + s.isa;
    if (device) s.label += ", " + s.device;
    if (cache) s.label += cat(", ", s.cache, " caches");
    if (clock) s.label += cat(", ", s.clock, " clock");
    if (weights) s.label += cat(", weights used ", s.weights);
    if (cpu) s.label += ", " + s.cpu;
  }
}

std::string short_name(const CloudProblem& z) {
  constexpr const char* kTimes = "\u00D7";
  const std::int64_t sites = z.cloud.sites;
  std::string out = sites >= 10000 && sites % 1000 == 0 ? cat(sites / 1000, "k") : cat(sites);
  out += cat(" ", name_of(z.cloud.shape), " ", z.c, " \u2192 ", z.k, ", ");
  for (int axis = 3 - z.cloud.rank(); axis < 3; ++axis) {
    out += cat(axis == 3 - z.cloud.rank() ? "" : kTimes,
               z.kernel.size[static_cast<std::size_t>(axis)]);
  }
  if (z.kind != SparseKind::submanifold) out += cat(" ", name_of(z.kind));
  if (z.dtype != DType::f32) out += cat(" ", name_of(z.dtype));
  if (z.math != MathMode::f32) out += cat(" ", name_of(z.math));
  return out;
}

std::string short_name(const BenchedProblem& z, bool with_batch) {
  constexpr const char* kTimes = "\u00D7";
  if (z.cloud()) return short_name(*z.cloud());
  std::string out = with_batch ? cat("N=", z.n, " ") : "";
  out += cat(z.c, kTimes, z.h, kTimes, z.w, " \u2192 ", z.k, ", ", z.r, kTimes, z.s);
  if (z.stride_h != 1 || z.stride_w != 1) out += cat(" /", z.stride_h);
  if (z.stride_w != z.stride_h) out += cat(kTimes, z.stride_w);
  if (z.layout != ActivationLayout::nchw) out += cat(" ", name_of(z.layout));
  if (z.types) out += cat(" ", z.types->text());
  if (!z.types && z.dtype != DType::f32) out += cat(" ", name_of(z.dtype));
  if (z.math != MathMode::f32) out += cat(" ", name_of(z.math));
  if (z.dilation_h != 1 || z.dilation_w != 1) out += cat(" d", z.dilation_h);
  if (z.groups > 1) out += z.groups == z.c ? " depthwise" : cat(" g", z.groups);
  if (z.deformable()) {
    out += z.deformable()->mask ? " deformable" : " deformable, no mask";
    const std::int64_t groups = z.deformable()->offset_groups;
    if (groups > 1) out += cat(", ", groups, " offset groups");
  }
  return out;
}

// Returns short names of the problems. If two problems would get the same short name, both get
// their full text instead.
std::vector<std::string> names_of(const std::vector<BenchedProblem>& problems) {
  const bool batch = std::ranges::any_of(
      problems, [&](const BenchedProblem& problem) { return problem.n != problems[0].n; });
  std::vector<std::string> names;
  for (const BenchedProblem& problem : problems) names.push_back(short_name(problem, batch));
  std::vector<std::string> out = names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::count(names, names[i]) > 1) out[i] = problems[i].text();
  }
  return out;
}

}  // namespace

// The text tells the kind of the problem. Only a deformable convolution has offset groups, and only
// a transposed one has an output padding. The text of a sparse convolution (a cloud of sites)
// begins with "cloud".
BenchedProblem::BenchedProblem(const std::string& text) {
  if (text.starts_with("cloud=")) {
    cloud_ = CloudProblem::parse(text);
    n = cloud_->cloud.batch;
    c = cloud_->c;
    k = cloud_->k;
    r = cloud_->kernel.size[1];
    s = cloud_->kernel.size[2];
    dtype = cloud_->dtype;
    math = cloud_->math;
    return;
  }
  if (text.find(",offset_groups=") != std::string::npos) {
    deformable_ = DeformConv2dProblem::parse(text);
    static_cast<Conv2dProblem&>(*this) = *deformable_;
  } else if (text.find(",opad=") != std::string::npos) {
    transposed_ = ConvTranspose2dProblem::parse(text);
    static_cast<Conv2dProblem&>(*this) = *transposed_;
  } else {
    static_cast<Conv2dProblem&>(*this) = Conv2dProblem::parse(text);
    check();
  }
}

const BenchedRow* BenchSet::find(const BenchPart& part, std::size_t problem,
                                 const std::string& algorithm) const {
  for (const BenchedRow& row : rows) {
    if (row.setting == part.setting && row.direction == part.direction && row.problem == problem &&
        row.algorithm == algorithm) {
      return &row;
    }
  }
  return nullptr;
}

const BenchedRefusal* BenchSet::find_refusal(const BenchPart& part, std::size_t problem,
                                             const std::string& algorithm) const {
  for (const BenchedRefusal& one : refusals) {
    if (one.setting == part.setting && one.direction == part.direction && one.problem == problem &&
        one.algorithm == algorithm) {
      return &one;
    }
  }
  return nullptr;
}

const BenchedRow* BenchSet::fastest(const BenchPart& part, std::size_t problem) const {
  const BenchedRow* best = nullptr;
  for (const BenchedRow& row : rows) {
    if (row.setting == part.setting && row.direction == part.direction && row.problem == problem &&
        row.median_ms > 0 && (best == nullptr || row.median_ms < best->median_ms)) {
      best = &row;
    }
  }
  return best;
}

std::vector<std::string> BenchSet::algorithms() const {
  std::vector<std::pair<int, std::string>> counted;
  for (const BenchedRow& row : rows) {
    const auto at = std::ranges::find(counted, row.algorithm, &std::pair<int, std::string>::second);
    if (at == counted.end()) {
      counted.emplace_back(-1, row.algorithm);
    } else {
      --at->first;
    }
  }
  std::ranges::sort(counted);
  std::vector<std::string> out;
  for (const auto& [count, name] : counted) out.push_back(name);
  return out;
}

std::vector<BenchPart> BenchSet::parts() const {
  std::vector<BenchPart> out;
  for (const Direction direction : kDirections) {
    for (std::size_t setting = 0; setting < settings.size(); ++setting) {
      for (const bool bytes : {false, true}) {
        std::set<std::size_t> there;
        for (const BenchedRow& row : rows) {
          if (row.setting == setting && row.direction == direction &&
              is_code(operand_type_of(problems[row.problem])) == bytes) {
            there.insert(row.problem);
          }
        }
        if (there.empty()) continue;
        std::string title(name_of(direction));
        std::ranges::replace(title, '_', ' ');
        out.push_back({.setting = setting,
                       .direction = direction,
                       .bytes = bytes,
                       .title = cat(title, bytes ? " of bytes" : "", ", ", settings[setting].label),
                       .problems = {there.begin(), there.end()}});
      }
    }
  }
  return out;
}

std::string BenchSet::baseline() const {
  std::set<std::string> ran;
  for (const BenchedRow& row : rows) {
    if (!row.baseline.empty()) ran.insert(row.baseline);
  }
  return join({ran.begin(), ran.end()});
}

std::string BenchSet::text() const {
  const auto plural = [](std::size_t count, const char* what) {
    return cat(count, " ", what, count == 1 ? "" : "s");
  };
  std::string out =
      cat(plural(problems.size(), "problem"), ", ", plural(algorithms().size(), "algorithm"));
  if (settings.empty()) return out;
  const BenchSetting& first = settings[0];
  const auto n = problems.empty() ? 0 : problems[0].n;
  if (std::ranges::all_of(problems, [&](const BenchedProblem& p) { return p.n == n; })) {
    out += cat(", N=", n);
  }
  if (!first.cpu.empty() && !differs(settings, &BenchSetting::cpu)) out += "; " + first.cpu;
  if (!first.isa.empty() && !differs(settings, &BenchSetting::isa)) out += ", " + first.isa;
  if (!first.cache.empty() && !differs(settings, &BenchSetting::cache)) {
    out += cat("; ", first.cache, " caches");
  }
  // The default "once" is not shown in the setting's name.
  if (first.weights != "once" && !differs(settings, &BenchSetting::weights)) {
    out += cat("; weights used ", first.weights);
  }
  return out;
}

BenchSet read_bench(const std::vector<std::string>& files) {
  BenchSet set;
  Reader reader(set);
  for (const std::string& file : files) reader.read(file);
  name_settings(set.settings);
  set.names = names_of(set.problems);
  return set;
}

}  // namespace convscope
