// SPDX-License-Identifier: Apache-2.0
// tune_command.cpp: `convscope tune`: measures the coefficients of the cost model on this machine,
// so that `auto` knows it.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "experiments/bench/peaks/measure_gpu_peaks.h"
#include "experiments/bench/peaks/measure_peaks.h"
#include "experiments/cli/command.h"
#include "experiments/explain/text_layout.h"
#include "experiments/operators/operator_table.h"
#include "experiments/tune/tuning.h"
#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"
#include "framework/machine/machine.h"
#include "framework/machine/peaks.h"
#include "framework/parallel.h"
#include "layers/dispatch/cost/fit.h"

namespace convscope {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

struct Arguments {
  std::string device = "cpu", samples, name, out;
  std::vector<std::string> from;
  double minutes = 5;
  std::int64_t seed = 1;
};

std::string percent(double share) { return number_text("%.0f %%", 100 * share); }

// Times problems of all operators in turns until the time is over.
std::vector<CostSample> measured(const Arguments& a, Device device) {
  if (device.type == DeviceType::cpu) {
    print_remark(cat("timing the algorithms for ", a.minutes, " minutes, with 1 and ",
                     num_threads(), " threads; other programs disturb the result"));
    remember_cpu_peaks(measure_cpu_peaks());
  } else {
    print_remark(cat("timing the algorithms for ", a.minutes, " minutes on ", device.str()));
    remember_gpu_peaks(measure_gpu_peaks());
  }
  const auto start = std::chrono::steady_clock::now();
  const auto minutes = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 60;
  };
  Tuning tuning(device, static_cast<std::uint64_t>(a.seed));
  double said = 0;
  while (minutes() < a.minutes) {
    for (const auto& [name, entry] : operator_table().entries()) {
      // conv2d has the most algorithms, and most networks contain nothing else.
      for (int i = 0; i < (name == "conv2d" ? 8 : 1) && entry.tune != nullptr; ++i) {
        if (minutes() < a.minutes) entry.tune(tuning);
      }
    }
    if (minutes() - said < 1) continue;
    said = minutes();
    print_remark(cat(number_text("%.0f", said), " minutes, ", tuning.samples().size(), " times"));
  }
  return tuning.samples();
}

void check_folder_of(const char* option, const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path();
  if (folder.empty() || std::filesystem::is_directory(folder)) return;
  fail(ErrorKind::kIo, "tune",
       cat("expected ", option, " in a folder that exists, got '", file, "'"));
}

int tune(const Arguments& a) {
  const Device device = Device::parse(a.device);
  if (a.from.empty()) (void)backend_of(device);  // throws with the reason where there is none
  // Minutes of measuring must not end at a file that cannot be written.
  check_folder_of("--samples", a.samples);
  check_folder_of("--out", a.out);
  std::vector<CostSample> samples;
  for (const std::string& file : a.from) {
    const std::vector<CostSample> more = parse_samples(read_text(file, kMaxBytes), file);
    samples.insert(samples.end(), more.begin(), more.end());
  }
  if (a.from.empty()) samples = measured(a, device);
  if (!a.samples.empty()) write_file(a.samples, samples_text(samples));
  DeviceTable table{.device = device.type == DeviceType::cpu ? cpu_model_name() : gpu_model_name(),
                    .by_isa = fit_table(samples)};
  const FitReport fit = report_of(samples, table.by_isa);
  std::set<std::pair<std::string, std::string>> kernels;
  for (const CostSample& sample : samples) kernels.emplace(sample.isa, sample.kernel);
  if (fit.questions == 0) {
    fail(ErrorKind::kInvalid, "tune",
         cat("expected enough times to check the fit, got ", samples.size(),
             "; give --minutes 2 or more"));
  }
  table.fitted = cat(samples.size(), " times of ", kernels.size(), " kernels; error on ", fit.rows,
                     " other times: median ", percent(fit.median_error), ", 90 % below ",
                     percent(fit.high_error));
  std::string where;
  if (!a.out.empty()) {
    write_file(a.out, device_table_text(table));
    where = a.out;
  } else {
    remember_device_table(table, device.type);
    where = user_table_path(device.type);
    if (!believes_measured_peaks()) where += " (not used while CONVSCOPE_MEASURE=off)";
  }
  print_screen(cat("fitted    ", table.fitted, "\nauto      within 10 % of the fastest in ",
                   percent(fit.within_10_percent), " of ", fit.questions,
                   " cases that were not fitted; at worst ", number_text("%.2f", fit.worst),
                   " times as long (", fit.worst_choice, " instead of ", fit.worst_fastest, ", ",
                   fit.worst_question, ")\ntable     ", where.empty() ? "not stored" : where,
                   "\n"));
  return 0;
}

std::function<int()> declare(CommandLine& app) {
  auto a = std::make_shared<Arguments>();
  app.add_option("--minutes", a->minutes, "how long to measure; 5 without it")
      ->type_name("N")
      ->positive();
  app.add_option("--device", a->device, "cpu or cuda")->type_name("DEVICE");
  app.add_option("--samples", a->samples, "also write counts and times to this file")
      ->type_name("FILE")
      ->output_file();
  app.add_option("--from", a->from, "measure nothing: fit the times of these files")
      ->type_name("FILE");
  app.add_option("--out", a->out, "write the table here instead of the cache folder")
      ->type_name("FILE")
      ->output_file();
  app.add_option("--seed", a->seed, "of the problems that are drawn")->type_name("N");
  return [a] { return tune(*a); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "tune",
    {.summary = "Measure what `auto` needs to know about this machine.",
     .usage = "tune [--device DEVICE] [--minutes N] [--samples FILE] [--from FILE]... [--out FILE]",
     .examples = {"tune", "tune --minutes 15 --samples samples.jsonl"},
     .order = 34,
     .declare = convscope::declare})
