// SPDX-License-Identifier: Apache-2.0
// write_seeds.cpp: the program `write_seeds FOLDER`, which writes the valid inputs of every target
// to FOLDER/<target>/.
#include <cstdio>

#include "framework/io/atomic_file.h"
#include "tests/fuzz/targets.h"

int main(int argc, char** argv) {
  using namespace convscope::testing;
  if (argc != 2) {
    std::fputs("usage: write_seeds FOLDER\n", stderr);
    return 2;
  }
  for (const FuzzTarget& target : fuzz_targets()) {
    const std::string folder = std::string(argv[1]) + "/" + std::string(target.name);
    std::filesystem::create_directories(folder);
    int number = 0;
    for (const std::string& seed : target.seeds()) {
      convscope::write_file(folder + "/seed" + std::to_string(number++), seed);
    }
  }
  return 0;
}
