// SPDX-License-Identifier: Apache-2.0
// notebook_user.cpp: a program that loads the library as the first cell of a notebook does, without
// linking it.
#include <convscope/notebook.h>

#include <cstdio>

int main() {
  void* const there = dlsym(convscope::notebook_library, "convscope_set_display_sink");
  std::printf("libconvscope is %s\n", there != nullptr ? "open" : "not open");
  return there != nullptr ? 0 : 1;
}
