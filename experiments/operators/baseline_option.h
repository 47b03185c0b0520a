// SPDX-License-Identifier: Apache-2.0
// baseline_option.h: the option --baseline of `convscope bench`: another library to time.
#pragma once

#include <string>

#include "experiments/bench/baseline_library.h"
#include "experiments/bench/bench_report.h"
#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/command_line.h"

namespace convscope {

class BaselineOption {
 public:
  void declare(CommandLine& app) {
    app.add_option("--baseline", name_, "another library to time, onednn");
  }
  void declare_former(CommandLine& app) { app.add_former_name("--peer", "--baseline", name_); }
  bool given() const { return !name_.empty(); }

  // Opens the library, if the option is given. Throws as open_baseline().
  void open() {
    if (!given()) return;
    baseline_ = &open_baseline(name_);
    remark(age_remark(*baseline_));
  }
  // Returns the opened library, or null.
  const ConvscopeBaseline* get() const { return baseline_; }
  BenchReportSettings with_name(BenchReportSettings settings) const {
    if (baseline_ == nullptr) return settings;
    settings.baseline_name = baseline_->name;
    settings.baseline_version = baseline_->version;
    return settings;
  }

 private:
  std::string name_;
  const ConvscopeBaseline* baseline_ = nullptr;
};

}  // namespace convscope
