// SPDX-License-Identifier: Apache-2.0
// bench_rows.cpp: the rows of a benchmark of one operator's problem in one direction. Each
// algorithm's result is checked, correct ones are timed interleaved, and the times are compared
// with the measured peaks. conv2d_bench.h adds another library's rows; other operators call
// bench_operator().
#include "experiments/bench/bench_rows.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>

#include "experiments/bench/device_timing.h"
#include "experiments/bench/honest/least_time.h"
#include "experiments/bench/problem_list.h"
#include "experiments/run_folder/user_words.h"
#include "framework/io/former_names.h"

namespace convscope {

BenchRows::BenchRows(const BenchSettings& settings, double nominal_flops, double nominal_bytes,
                     DType operand_type, double least_bytes)
    : settings_(settings),
      nominal_flops_(nominal_flops),
      nominal_bytes_(nominal_bytes),
      least_bytes_(least_bytes < 0 ? nominal_bytes : least_bytes),
      operand_type_(operand_type),
      threads_(num_threads()) {}

void BenchRows::add(std::unique_ptr<BenchContender> contender, const Cost& cost, bool auto_choice,
                    const std::function<double(BenchContender&)>& check) {
  contenders_.push_back(std::move(contender));
  rows_.push_back(std::make_unique<BenchRow>());
  BenchContender& one = *contenders_.back();
  BenchRow& row = *rows_.back();
  row.algorithm = one.name();
  row.auto_choice = auto_choice;
  row.workspace_bytes = one.workspace_bytes() + one.prepared_bytes();
  row.prepared_bytes = one.prepared_bytes();
  row.executed_per_useful = nominal_flops_ > 0 ? cost.flops / nominal_flops_ : 0;
  const double first_seconds = check(one);
  row.error_ratio = one.error_ratio();
  row.wrong = one.wrong();
  if (!row.wrong.empty()) return;
  add_other(timed(one, first_seconds, [this] { return weights_may_move(contenders_); }),
            [this, &row, cost](const std::vector<double>& seconds) { fill(row, cost, seconds); });
  if (row.prepared_bytes == 0) return;
  // Preparing the weights is timed separately, because inference prepares them once for many calls.
  const auto begin = std::chrono::steady_clock::now();
  one.prepare();
  backend_of(settings_.device).synchronize(settings_.device.index);
  const std::chrono::duration<double> once = std::chrono::steady_clock::now() - begin;
  add_other({.run = [&one] { one.prepare(); }, .estimate_seconds = once.count(), .seconds = {}},
            [&row](const std::vector<double>& all) { row.prepare_ms = summary_of(all).median_ms; });
}

void BenchRows::add_other(TimedThing thing, std::function<void(const std::vector<double>&)> done) {
  things_.push_back(std::move(thing));
  done_.push_back(std::move(done));
}

void BenchRows::fill(BenchRow& row, const Cost& cost, const std::vector<double>& seconds) const {
  row.time = summary_of(seconds);
  row.gflops_effective = nominal_flops_ / (row.time.median_ms * 1e6);
  row.gflops_executed = cost.flops / (row.time.median_ms * 1e6);
  if (settings_.peaks && settings_.device.type == DeviceType::cpu) {
    const double least = roofline_seconds(*settings_.peaks, cost.flops, nominal_bytes_, threads_,
                                          settings_.cold, operand_type_);
    row.roofline_percent = 100 * least / (row.time.median_ms * 1e-3);
    row.impossible = impossible_time(*settings_.peaks, row.time.median_ms * 1e-3, cost.flops,
                                     least_bytes_, threads_, operand_type_);
  }
}

std::size_t BenchRows::last_level_bytes() const {
  constexpr std::size_t kUnknown = std::size_t{64} << 20;
  if (settings_.device.type != DeviceType::cpu) {
    const DeviceFacts facts = backend_of(settings_.device).facts(settings_.device.index);
    return facts.l2_bytes > 0 ? static_cast<std::size_t>(facts.l2_bytes) : kUnknown;
  }
  return settings_.peaks ? std::max(settings_.peaks->l2_bytes, settings_.peaks->l3_bytes)
                         : kUnknown;
}

std::vector<BenchRow> BenchRows::measured() {
  const InterleaveOptions timing{.min_seconds = settings_.min_seconds,
                                 .least_samples = settings_.least_samples,
                                 .cold = settings_.cold,
                                 .cpu_clock = settings_.cpu_clock,
                                 .cache_bytes = last_level_bytes()};
  if (settings_.device.type == DeviceType::cpu) {
    time_interleaved(things_, timing);
  } else {
    time_on_device(things_, settings_.device, timing);
  }
  for (std::size_t i = 0; i < things_.size(); ++i) done_[i](things_[i].seconds);
  std::vector<BenchRow> out;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    BenchRow& row = *rows_[i];
    if (row.wrong.empty() && !contenders_[i]->wrong().empty())
      row.take_back(contenders_[i]->wrong());
    out.push_back(row);
  }
  std::ranges::stable_sort(out, {}, [](const BenchRow& row) {
    return row.counts() ? row.time.median_ms : std::numeric_limits<double>::infinity();
  });
  return out;
}

std::vector<std::string> algorithms_in(const char* command, const std::string& text, Device device,
                                       const std::vector<std::string>& names) {
  std::vector<std::string> out;
  if (text == "all" || text == "auto") {
    std::ranges::copy_if(names, std::back_inserter(out), [](const std::string& name) {
      return name != kOracleAlgorithm && !name.ends_with("_lesson");
    });
    return out;
  }
  std::vector<std::string> words = names;
  words.insert(words.end(), {"all", "auto"});
  for (const std::string& word : split_commas(text)) {
    const std::string name(accepted_name(word));
    if (std::ranges::count(names, name) == 0) {
      const bool is_list = name == "all" || name == "auto";
      fail(is_list ? ErrorKind::kInvalid : ErrorKind::kUnavailable, command,
           is_list ? cat("expected '", name, "' by itself, because it is a list already, got '",
                         text, "'")
                   : cat("expected all, auto or algorithms of device ", device.str(), " (",
                         join(names), "), got '", name, "'", did_you_mean(name, words)));
    }
    if (std::ranges::count(out, name) == 0) out.push_back(name);
  }
  return out;
}

double roofline_seconds(const CpuPeaks& peaks, double flops, double bytes, int threads, bool cold,
                        DType operand_type) {
  const int used = std::min(threads, peaks.cores);
  const Peak* level = &peaks.dram_copy;
  if (!cold && bytes <= static_cast<double>(peaks.l3_bytes) && peaks.l3_copy.one_thread > 0) {
    level = &peaks.l3_copy;
  }
  if (!cold && bytes <= static_cast<double>(peaks.l2_bytes) * used &&
      peaks.l2_copy.one_thread > 0) {
    level = &peaks.l2_copy;
  }
  return std::max(flops / peaks.peak(operand_type).with(used, peaks.cores),
                  bytes / level->with(used, peaks.cores));
}

}  // namespace convscope
