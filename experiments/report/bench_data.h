// SPDX-License-Identifier: Apache-2.0
// bench_data.h: reads files of `convscope bench OPERATOR --json` for plots. The files of one call
// form one set; they may differ in threads, instruction sets, caches or devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/bench/sparse/cloud_problem.h"
#include "experiments/report/bench_head.h"
#include "framework/machine/peaks.h"
#include "layers/conv_transpose2d/problem.h"
#include "layers/deform_conv2d/problem.h"

namespace convscope {

// The settings of a set's rows.
struct BenchSetting {
  std::string device, isa, cpu, cache, clock, weights;
  int threads = 1;
  std::optional<CpuPeaks> peaks = {};
  std::string label = {};  // "2 threads", and other differences from the set's other settings
};

// The problem of a convolution. A deformable convolution has additional sizes. A sparse convolution
// has channels, kernel, type and the cloud of its sites; its FLOPs and bytes are read from the rows
// of the file.
class CONVSCOPE_API BenchedProblem : public Conv2dProblem {
 public:
  // Parses the text of a row; fails when it is not a problem.
  explicit BenchedProblem(const std::string& text);
  const std::optional<DeformConv2dProblem>& deformable() const { return deformable_; }
  const std::optional<ConvTranspose2dProblem>& transposed() const { return transposed_; }
  const std::optional<CloudProblem>& cloud() const { return cloud_; }
  std::string text() const {
    return cloud_        ? cloud_->text()
           : deformable_ ? deformable_->text()
           : transposed_ ? transposed_->text()
                         : Conv2dProblem::text();
  }
  double nominal_flops() const {
    return cloud_        ? flops_
           : transposed_ ? transposed_->nominal_flops()
                         : Conv2dProblem::nominal_flops();
  }
  double nominal_bytes() const {
    return cloud_        ? bytes_
           : deformable_ ? deformable_->nominal_bytes()
           : transposed_ ? transposed_->nominal_bytes()
                         : Conv2dProblem::nominal_bytes();
  }
  // Sets the FLOPs and bytes of a sparse problem from the rows of the file, so that its cloud of
  // sites need not be generated again.
  void set_nominal(double flops, double bytes) { flops_ = flops, bytes_ = bytes; }
  bool operator==(const BenchedProblem& other) const { return text() == other.text(); }

 private:
  std::optional<DeformConv2dProblem> deformable_;
  std::optional<ConvTranspose2dProblem> transposed_;
  std::optional<CloudProblem> cloud_;
  double flops_ = 0, bytes_ = 0;
};

// One algorithm on one problem; NaN means no value.
struct BenchedRow {
  std::size_t setting = 0, problem = 0;  // indices into BenchSet
  Direction direction = Direction::forward;
  std::string algorithm;
  double median_ms = 0, gflops_effective = 0, gflops_executed = 0, workspace_bytes = 0;
  double baseline_median_ms = 0,
         baseline_plain_median_ms = 0;  // in the baseline's own layouts; row-major
  bool auto_choice = false;
  std::string baseline, wrong;  // "onednn 3.2.0"; why the row was not timed
};

struct BenchedRefusal {
  std::size_t setting = 0, problem = 0;
  Direction direction = Direction::forward;
  std::string algorithm, reason;
};

// The content of one panel: the problems of one direction and one setting. A panel holds either
// only problems with integer operands (`bytes`) or only the other problems.
struct BenchPart {
  std::size_t setting = 0;
  Direction direction = Direction::forward;
  bool bytes = false;
  std::string title;                  // "backward data, 2 threads"
  std::vector<std::size_t> problems;  // problems with a row
};

struct CONVSCOPE_API BenchSet {
  std::vector<BenchSetting> settings;
  std::vector<BenchedProblem> problems;
  std::vector<std::string> names;  // short texts of the problems: "64×56×56 → 64, 3×3"
  std::vector<BenchedRow> rows;
  std::vector<BenchedRefusal> refusals;
  std::vector<std::string> remarks;   // "b.json: 3 rows were measured again"
  std::vector<BenchHead> heads = {};  // one per file

  // Returns the row, or null.
  const BenchedRow* find(const BenchPart& part, std::size_t problem,
                         const std::string& algorithm) const;
  const BenchedRefusal* find_refusal(const BenchPart& part, std::size_t problem,
                                     const std::string& algorithm) const;
  // Returns the fastest timed row, or null.
  const BenchedRow* fastest(const BenchPart& part, std::size_t problem) const;
  // Returns the algorithms that have a timed row, sorted by the number of problems that they
  // accept, the largest number first.
  std::vector<std::string> algorithms() const;
  std::vector<BenchPart> parts() const;
  std::string baseline() const;  // all baselines of the rows; "" without one
  std::string text() const;      // "11 problems, 9 algorithms; Intel Xeon, avx512; warm caches"
};

// Reads the files. Fails with one sentence when a file cannot be read (kIo), is not a benchmark,
// has no row, or has a row without problem, direction, algorithm, threads or time (kData).
CONVSCOPE_API BenchSet read_bench(const std::vector<std::string>& files);

}  // namespace convscope
