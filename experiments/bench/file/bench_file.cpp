// SPDX-License-Identifier: Apache-2.0
// bench_file.cpp: a result file that grows during a benchmark.
#include "experiments/bench/file/bench_file.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "framework/check.h"
#include "framework/io/atomic_file.h"
#include "framework/io/clean_text.h"

namespace convscope {
namespace {

// A signal handler prints this text, so it is ready-made: a handler may call nothing but write().
std::array<char, 1024> last_words = {};
volatile std::sig_atomic_t last_words_size = 0;

extern "C" void say_last_words(int signal) {
  const auto size = static_cast<std::size_t>(last_words_size);
  if (size > 0 && write(STDERR_FILENO, last_words.data(), size) < 0) {
    // nobody listens
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void set_last_words(const std::string& text) {
  last_words_size = 0;
  const std::size_t size = std::min(text.size(), last_words.size());
  std::memcpy(last_words.data(), text.data(), size);
  last_words_size = static_cast<std::sig_atomic_t>(size);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(signal, size > 0 ? say_last_words : SIG_DFL) == SIG_IGN) {
      std::signal(signal, SIG_IGN);  // nohup
    }
  }
}

bool is_plain_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

}  // namespace

std::string unfinished_name(const std::string& path) {
  const std::filesystem::path whole(path);
  return (whole.parent_path() /
          (whole.stem().string() + ".unfinished" + whole.extension().string()))
      .string();
}

BenchFile::BenchFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  check_writable(path_);
  if (is_plain_file(path_)) unfinished_ = unfinished_name(path_);
}

BenchFile::~BenchFile() {
  if (kept_) set_last_words("");
}

void BenchFile::keep(const std::string& text) {
  if (unfinished_.empty()) return;
  // The file is registered for the signal handler before it exists, so that no signal can leave a
  // file that is not announced.
  if (!std::exchange(kept_, true)) {
    set_last_words(clean_line(cat("bench: not finished; what was measured is in ", unfinished_)) +
                   "\n");
  }
  write_file(unfinished_, text);
}

void BenchFile::finish(const std::string& text) {
  if (path_.empty()) return;
  write_file(path_, text);
  if (unfinished_.empty()) return;
  std::error_code error;
  std::filesystem::remove(unfinished_, error);
  if (std::exchange(kept_, false)) set_last_words("");
}

}  // namespace convscope
