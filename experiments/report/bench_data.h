// SPDX-License-Identifier: Apache-2.0
// bench_data.h: what the files of `convscope bench conv2d --json`, `bench deform_conv2d --json` and
// `bench sparse_conv --json` say, for plots. Several files are one set: measured with other numbers
// of threads, instruction sets, caches or devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/bench/sparse/cloud_problem.h"
#include "experiments/report/bench_head.h"
#include "framework/machine/ceilings.h"
#include "layers/deform_conv2d/problem.h"

namespace convscope {

// What the rows of a set were measured with.
struct BenchSetting {
  std::string device, isa, cpu, cache, clock, weights;
  int threads = 1;
  std::optional<CpuCeilings> ceilings = {};
  std::string label = {};  // "2 threads", and what else tells it from the others of its set
};

// The problem of a convolution; of a deformable one, its sizes and what it has more; of a sparse
// one its channels, kernel and type, and the cloud. What that costs stands in its rows.
class CONVSCOPE_API BenchedProblem : public Conv2dProblem {
 public:
  // As a row names it; an error when it is no problem.
  explicit BenchedProblem(const std::string& text);
  const std::optional<DeformConv2dProblem>& deformable() const { return deformable_; }
  const std::optional<CloudProblem>& cloud() const { return cloud_; }
  std::string text() const {
    return cloud_ ? cloud_->text() : deformable_ ? deformable_->text() : Conv2dProblem::text();
  }
  double nominal_flops() const { return cloud_ ? flops_ : Conv2dProblem::nominal_flops(); }
  double nominal_bytes() const {
    return cloud_        ? bytes_
           : deformable_ ? deformable_->nominal_bytes()
                         : Conv2dProblem::nominal_bytes();
  }
  // Of a cloud: nobody draws it again.
  void set_nominal(double flops, double bytes) { flops_ = flops, bytes_ = bytes; }
  bool operator==(const BenchedProblem& other) const { return text() == other.text(); }

 private:
  std::optional<DeformConv2dProblem> deformable_;
  std::optional<CloudProblem> cloud_;
  double flops_ = 0, bytes_ = 0;
};

// One algorithm on one problem; NaN: there is no such number.
struct BenchedRow {
  std::size_t setting = 0, problem = 0;  // places in BenchSet
  Direction direction = Direction::forward;
  std::string algorithm;
  double median_ms = 0, gflops_effective = 0, gflops_executed = 0, workspace_bytes = 0;
  double peer_median_ms = 0, peer_plain_median_ms = 0;  // its own layouts; row-major, converting
  bool auto_choice = false;
  std::string peer, wrong;  // "onednn 3.2.0"; why it was not timed
};

struct BenchedRefusal {
  std::size_t setting = 0, problem = 0;
  Direction direction = Direction::forward;
  std::string algorithm, reason;
};

// What one panel shows: one direction, measured with one setting; products of bytes, or all others.
struct BenchPart {
  std::size_t setting = 0;
  Direction direction = Direction::forward;
  bool bytes = false;
  std::string title;                  // "backward data, 2 threads"
  std::vector<std::size_t> problems;  // those with a row
};

struct CONVSCOPE_API BenchSet {
  std::vector<BenchSetting> settings;
  std::vector<BenchedProblem> problems;
  std::vector<std::string> names;  // of the problems, short: "64×56×56 → 64, 3×3"
  std::vector<BenchedRow> rows;
  std::vector<BenchedRefusal> refusals;
  std::vector<std::string> remarks;   // "b.json: 3 rows were measured again"
  std::vector<BenchHead> heads = {};  // of each file

  // The row, or null.
  const BenchedRow* find(const BenchPart& part, std::size_t problem,
                         const std::string& algorithm) const;
  const BenchedRefusal* find_refusal(const BenchPart& part, std::size_t problem,
                                     const std::string& algorithm) const;
  // The timed row with the least time, or null.
  const BenchedRow* fastest(const BenchPart& part, std::size_t problem) const;
  // Those of which a row was timed, the ones that accept the most problems first.
  std::vector<std::string> algorithms() const;
  std::vector<BenchPart> parts() const;
  std::string peer() const;  // all that stand in the rows; "" when there was none
  std::string text() const;  // "11 problems, 9 algorithms; Intel Xeon, avx512; warm caches"
};

// An error with one sentence when a file cannot be read (kIo), is no benchmark, has no row or a row
// without problem, direction, algorithm, threads or time (kData).
CONVSCOPE_API BenchSet read_bench(const std::vector<std::string>& files);

}  // namespace convscope
