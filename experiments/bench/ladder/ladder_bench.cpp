// SPDX-License-Identifier: Apache-2.0
// ladder_bench.cpp: times the rungs of one ladder (layers/conv2d/ladder.h), which shows the gain of
// each idea between the lesson and the fastest algorithm.
#include "experiments/bench/ladder/ladder_bench.h"

#include <algorithm>
#include <memory>

#include "experiments/bench/contender.h"
#include "experiments/bench/conv2d_bench.h"
#include "experiments/bench/device_timing.h"
#include "experiments/bench/honest/least_time.h"
#include "experiments/bench/interleave.h"
#include "experiments/bench/problem_list.h"
#include "experiments/run_folder/user_words.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {
namespace {

constexpr const char* kOperation = "bench conv2d";

// Returns the row of a rung: its name, its settings, or the reason why it cannot run. If the CPU
// lacks the rung's instruction set, the best available one is used.
LadderRow row_of(Conv2dRung rung, const LadderOptions& options) {
  const bool on_cpu = options.device.type == DeviceType::cpu;
  const bool asks = on_cpu && *rung.isa != '\0';
  const Isa asked = asks ? parse_isa(rung.isa) : current_isa();
  Isa isa = std::min(asked, current_isa());
  while (!supports_isa(isa)) isa = static_cast<Isa>(static_cast<int>(isa) - 1);  // scalar runs
  if (asks) rung.isa = name_of(isa).data();                                      // of a literal
  LadderRow row{.rung = label_of(rung),
                .algorithm = rung.algorithm,
                .threads = rung.threads == 0 ? num_threads() : rung.threads,
                .math = rung.math,
                .prepares_each_call = rung.prepare_each_call,
                .adds = rung.sentence};
  if (!on_cpu) return row;
  row.isa = name_of(isa);
  row.asked_isa = name_of(asked);
  if (row.threads > num_threads()) {
    row.left_out = cat(row.threads, " threads are more than the ", num_threads(), " of this run");
  }
  return row;
}

bool run_alike(const LadderRow& a, const LadderRow& b) {
  return a.algorithm == b.algorithm && a.isa == b.isa && a.threads == b.threads &&
         a.math == b.math && a.prepares_each_call == b.prepares_each_call;
}

// Two rungs can have equal settings on this machine. With one thread, for example, "all threads" is
// the same as the rung below.
std::string why_repeated(const LadderRow& row, const LadderRow& below) {
  if (row.isa == row.asked_isa) return cat("the same as ", below.rung, " in this run");
  return supports_isa(parse_isa(row.asked_isa))
             ? cat("CONVSCOPE_ISA allows ", row.isa, " at most, got ", row.asked_isa)
             : cat("what runs here is ", row.isa, ", not ", row.asked_isa);
}
void leave_out_repeated(const Conv2dLadder& ladder, std::vector<LadderRow>& rows) {
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (!rows[i].left_out.empty()) continue;
    for (std::size_t j = 0; j < i; ++j) {
      if (!rows[j].left_out.empty() || !run_alike(rows[i], rows[j])) continue;
      rows[i].left_out = why_repeated(rows[i], rows[j]);
      rows[i].rung = label_of(ladder.rungs[i]);  // the name without substitutions
      break;
    }
  }
}

Switches switches_of(const LadderRow& row) {
  return {.isa = row.isa.empty() ? -1 : static_cast<int>(parse_isa(row.isa)),
          .threads = row.threads,
          .prepares_each_call = row.prepares_each_call};
}

double peak_of(const LadderOptions& options, const Conv2dProblem& problem, int threads) {
  if (!options.peaks) return options.flops_per_second;
  const CpuPeaks& peaks = *options.peaks;
  return peaks.peak(operand_type_of(problem)).with(std::min(threads, peaks.cores), peaks.cores);
}

void fill_factors(LadderResult& result) {
  const LadderRow* below = nullptr;
  for (LadderRow& row : result.rows) {
    if (!row.timed()) continue;
    if (below != nullptr) row.factor = below->time.median_ms / row.time.median_ms;
    below = &row;
  }
}

}  // namespace

const LadderRow* LadderResult::first() const {
  const auto at = std::ranges::find_if(rows, &LadderRow::timed);
  return at == rows.end() ? nullptr : &*at;
}

const LadderRow* LadderResult::fastest() const {
  const LadderRow* best = nullptr;
  for (const LadderRow& row : rows) {
    if (!row.timed()) continue;
    if (best == nullptr || row.time.median_ms < best->time.median_ms) best = &row;
  }
  return best;
}

double LadderResult::total_factor() const {
  const LadderRow* const best = fastest();
  return best == nullptr ? 0 : first()->time.median_ms / best->time.median_ms;
}

std::vector<const Conv2dLadder*> ladders_named(const std::string& text, Device device) {
  const Registry<Conv2dLadder>& table = conv2d_ladders(device.type);
  std::vector<const Conv2dLadder*> out;
  if (text == "all") {
    for (const auto& [name, ladder] : table.entries()) out.push_back(&ladder);
    return out;
  }
  for (const std::string& name : split_commas(text)) {
    const Conv2dLadder* const found = table.find(name);
    if (found == nullptr) {
      fail(ErrorKind::kUnavailable, kOperation,
           cat("expected --ladder all or a ladder of device ", device.str(), " (",
               join(table.names()), "), got '", name, "'", did_you_mean(name, table.names())));
    }
    if (std::ranges::count(out, found) == 0) out.push_back(found);
  }
  return out;
}

LadderResult bench_ladder(const Conv2dLadder& ladder, const Conv2dProblem& problem,
                          Direction direction, const LadderOptions& options,
                          const std::function<void(const std::string&)>& progress) {
  check_can_be_timed(problem, options.device);
  CONVSCOPE_CHECK(problem.n > 0, kOperation,
                  "expected a batch of at least one image because nothing else can be timed, got ",
                  problem.text());
  const double peak_of_problem = peak_of(options, problem, num_threads());
  LadderResult result{.name = ladder.name,
                      .problem = problem,
                      .direction = direction,
                      .peak_gflops = peak_of_problem * 1e-9};
  for (const Conv2dRung& rung : ladder.rungs) result.rows.push_back(row_of(rung, options));
  leave_out_repeated(ladder, result.rows);

  const BenchData data(problem, direction, options.device);
  std::unique_ptr<SampledReference> reference;
  std::vector<std::unique_ptr<BenchContender>> contenders;
  std::vector<TimedThing> things;
  std::vector<LadderRow*> timed_rows;  // parallel to things
  std::vector<const Contender*> timed_contenders;
  for (LadderRow& row : result.rows) {
    if (!row.left_out.empty()) continue;
    const Conv2dAlgorithm& algorithm = conv2d_algorithms(options.device.type).get(row.algorithm);
    Conv2dProblem here = problem;
    here.math = row.math;
    const Conv2dSupport support = support_of(algorithm, here, direction);
    if (!support.yes) {
      row.left_out = cat("refuses: ", support.reason);
      continue;
    }
    if (!reference) {
      progress("expected values");
      reference = std::make_unique<SampledReference>(problem, direction, data.inputs());
    }
    progress(cat("checking ", row.rung));
    contenders.push_back(
        std::make_unique<Contender>(algorithm, here, direction, data, switches_of(row)));
    auto& one = static_cast<Contender&>(*contenders.back());
    const double first_seconds = one.check(*reference);
    row.error_ratio = one.error_ratio();
    row.wrong = !one.wrong().empty();
    row.left_out = one.wrong();
    row.gflops_executed =
        algorithm.cost(here, direction).flops;  // becomes a rate once there is a time
    if (row.wrong) continue;
    things.push_back(timed(one, first_seconds, [&] { return weights_may_move(contenders); }));
    timed_contenders.push_back(&one);
    timed_rows.push_back(&row);
  }

  progress("timing");
  const InterleaveOptions timing{.min_seconds = options.min_seconds,
                                 .least_samples = options.least_samples,
                                 .cold = options.cold,
                                 .cpu_clock = options.cpu_clock,
                                 .cache_bytes = options.cache_bytes};
  if (options.device.type == DeviceType::cpu) {
    time_interleaved(things, timing);
  } else {
    time_on_device(things, options.device, timing);
  }
  for (std::size_t i = 0; i < things.size(); ++i) {
    LadderRow& row = *timed_rows[i];
    if (!timed_contenders[i]->wrong().empty()) {
      row.wrong = true;
      row.left_out = timed_contenders[i]->wrong();
      continue;
    }
    row.time = summary_of(things[i].seconds);
    row.gflops_effective = problem.nominal_flops() / (row.time.median_ms * 1e6);
    const double executed = row.gflops_executed;
    row.gflops_executed /= row.time.median_ms * 1e6;
    const bool tf32 = row.math == MathMode::tf32;
    const double peak =
        tf32 ? options.tf32_flops_per_second : peak_of(options, problem, row.threads);
    if (peak > 0) row.peak_percent = 100 * row.gflops_executed * 1e9 / peak;
    if (options.peaks) {
      row.impossible =
          impossible_time(*options.peaks, row.time.median_ms * 1e-3, executed,
                          least_bytes_of(problem), row.threads, operand_type_of(problem));
    }
  }
  for (LadderRow& row : result.rows) {
    if (!row.timed()) row.gflops_executed = 0;
  }
  fill_factors(result);
  return result;
}

}  // namespace convscope
