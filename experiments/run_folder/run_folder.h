// SPDX-License-Identifier: Apache-2.0
// run_folder.h: the folder that holds everything about one run:
//   runs/<name>/<UTC time>-s<seed>[-N]/    and    runs/<name>/latest -> the newest of them
// Files: config.yaml overrides.txt env.json status.json log.txt metrics.jsonl epochs.csv layers.csv
// sparsity.csv quant.csv summary.json report.html ckpt/{last,previous,best}.safetensors and, once
// it has ended, ckpt/quantised.safetensors of a quantised run (quant/quantized_file.h) or
// ckpt/sparse.safetensors of a pruned one (sparsity/file/sparse_file.h). Every file that is
// rewritten is written under another name and renamed, so no reader ever sees half of one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/check.h"

namespace convscope {

// Of a quantised run that has ended, below its folder; of a pruned one.
inline constexpr const char* kQuantizedModel = "ckpt/quantised.safetensors";
inline constexpr const char* kSparseModel = "ckpt/sparse.safetensors";

// What status.json says.
struct RunStatus {
  std::string state = {};   // RUNNING, DONE, FAILED, INTERRUPTED
  std::string reason = {};  // why it failed or stopped; "" otherwise
  int exit_code = -1;       // -1 while it runs
  std::int64_t pid = 0;
  std::string host = {};      // where pid counts
  double heartbeat_unix = 0;  // last sign of life, seconds since 1970
  std::int64_t epoch = 0;     // finished epochs
  std::int64_t step = 0;      // finished steps
};

// The status of a run folder; state "UNREADABLE" with the reason when there is none. A run that
// says RUNNING while nobody works on it any more (its process was killed) comes out as KILLED. Of a
// run on another host the clock of this host decides that, or, `exactly`, that of the file system
// (run_owner.h).
CONVSCOPE_API RunStatus read_run_status(const std::string& folder, bool exactly = false);

class CONVSCOPE_API RunFolder {
 public:
  // A new folder under root/name, which it creates, and the `latest` link.
  static RunFolder create(const std::string& root, const std::string& name, std::uint64_t seed);
  // An existing folder, to go on with; an error when another process works on it.
  static RunFolder reopen(const std::string& path);
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;

  const std::string& path() const { return path_; }
  std::string id() const;                                             // "2026-11-21_054156-s1"
  std::string file(std::string_view name) const;                      // path of a file in it
  void write(std::string_view name, std::string_view content) const;  // whole or not at all

  // Throws when another process has taken the run over, as may happen after a long sleep of this
  // one.
  void check_owner() const;
  // state, reason, exit_code, epoch and step are taken from `status`; the rest is filled in.
  void set_status(const RunStatus& status) const;
  // Appends a line to log.txt, with the UTC time before it.
  void log(std::string_view line) const;

 private:
  RunFolder(std::string path, int lock, int log, std::int64_t owner)
      : path_(std::move(path)), lock_(lock), log_(log), owner_(owner) {}
  std::string path_;
  int lock_ = -1;  // held as long as this process works on the folder
  int log_ = -1;
  std::int64_t owner_ = 1;  // the number that this process has claimed (run_owner.h)
};

// The folder that `run` means: a run folder, or runs/<name> (its latest run).
CONVSCOPE_API std::string resolve_run(const std::string& run);

// "2026-11-21T05:41:56Z"
CONVSCOPE_API std::string utc_time_text(double unix_seconds);
CONVSCOPE_API double unix_seconds_now();

}  // namespace convscope
