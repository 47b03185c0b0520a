// SPDX-License-Identifier: Apache-2.0
// stdout_file.cpp: a file that appears on stdout.
#include "experiments/cli/screen/stdout_file.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "experiments/trainer/ranks/rank_order.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

struct Taken {
  ScratchFolder folder;
  int stdout_copy = -1;  // the original stdout
};
std::unique_ptr<Taken>& taken() {
  static std::unique_ptr<Taken> one;
  return one;
}

std::string path_in(const Taken& one) { return one.folder.path() + "/stdout"; }

}  // namespace

bool StdoutFile::is_taken() { return taken() != nullptr; }

std::string StdoutFile::take() {
  auto one = std::make_unique<Taken>();
  std::cout.flush();
  std::fflush(stdout);
  one->stdout_copy = dup(STDOUT_FILENO);
  if (one->stdout_copy < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    fail(ErrorKind::kIo, "stdout", "expected to write a file to stdout, which is closed");
  }
  taken() = std::move(one);
  return path_in(*taken());
}

StdoutFile::~StdoutFile() {
  if (taken() == nullptr) return;
  std::cout.flush();
  std::fflush(stdout);
  dup2(taken()->stdout_copy, STDOUT_FILENO);
  close(taken()->stdout_copy);
  // The file is missing when the command failed before writing it.
  const std::string text = text_if_there(path_in(*taken())).value_or("");
  std::fwrite(text.data(), 1, text.size(), stdout);
  taken().reset();
}

}  // namespace convscope
