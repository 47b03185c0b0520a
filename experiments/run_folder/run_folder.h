// SPDX-License-Identifier: Apache-2.0
// run_folder.h: the folder of a run:
//   runs/<name>/<UTC time>-s<seed>[-N]/    and    runs/<name>/latest -> the newest of them
// Files: config.yaml overrides.txt env.json status.json log.txt metrics.jsonl epochs.csv layers.csv
// sparsity.csv quant.csv summary.json report.html ckpt/{last,previous,best}.safetensors. A finished
// run also has ckpt/quantised.safetensors if it is quantised (quant/quantized_file.h) or
// ckpt/sparse.safetensors if it is pruned (sparsity/file/sparse_file.h). A file is rewritten under
// another name and then renamed, so readers never see half of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/check.h"

namespace convscope {

// The model files of a finished quantised run and of a finished pruned run, relative to the run
// folder.
inline constexpr const char* kQuantizedModel = "ckpt/quantised.safetensors";
inline constexpr const char* kSparseModel = "ckpt/sparse.safetensors";

// Content of status.json.
struct RunStatus {
  std::string state = {};   // RUNNING, DONE, FAILED, INTERRUPTED
  std::string reason = {};  // why it failed or stopped; otherwise ""
  int exit_code = -1;       // -1 while it runs
  std::int64_t pid = 0;
  std::string host = {};      // host of pid
  double heartbeat_unix = 0;  // last sign of life, seconds since 1970
  std::int64_t epoch = 0;     // finished epochs
  std::int64_t step = 0;      // finished steps
};

// Returns the status of a run folder. If there is none, the state is "UNREADABLE" with the reason.
// A RUNNING run whose process is gone is returned as KILLED. On another host, a process counts as
// gone when its heartbeat is too old; its age is measured by the clock of this host, or with
// `exactly` by the clock of the file system (run_owner.h).
CONVSCOPE_API RunStatus read_run_status(const std::string& folder, bool exactly = false);

class CONVSCOPE_API RunFolder {
 public:
  // Creates a new folder under root/name, and the `latest` link.
  static RunFolder create(const std::string& root, const std::string& name, std::uint64_t seed);
  // Opens an existing folder to continue; fails when another process works on it.
  static RunFolder reopen(const std::string& path);
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;

  const std::string& path() const { return path_; }
  std::string id() const;                                             // "2026-11-21_054156-s1"
  std::string file(std::string_view name) const;                      // path of a file in it
  void write(std::string_view name, std::string_view content) const;  // atomic: all or nothing

  // Fails when another process has taken the run over, for instance because this process was
  // suspended for long.
  void check_owner() const;
  // Writes status.json; `status` supplies state, reason, exit_code, epoch and step.
  void set_status(const RunStatus& status) const;
  // Appends a line to log.txt, with the UTC time before it.
  void log(std::string_view line) const;

 private:
  RunFolder(std::string path, int lock, int log, std::int64_t owner)
      : path_(std::move(path)), lock_(lock), log_(log), owner_(owner) {}
  std::string path_;
  int lock_ = -1;  // held while this process works on the folder
  int log_ = -1;
  std::int64_t owner_ = 1;  // number claimed by this process (run_owner.h)
};

// Returns the folder of `run`: a run folder, or runs/<name> (its latest run).
CONVSCOPE_API std::string resolve_run(const std::string& run);

// Returns "2026-11-21T05:41:56Z".
CONVSCOPE_API std::string utc_time_text(double unix_seconds);
CONVSCOPE_API double unix_seconds_now();

}  // namespace convscope
