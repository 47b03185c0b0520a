// SPDX-License-Identifier: Apache-2.0
// cheat_plugin.cpp: a plug-in whose algorithm computes correct results but cheats. CONVSCOPE_CHEAT
// names the cheat, which a check or a benchmark must detect.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <thread>
#include <vector>

#include "layers/plugin/plugin.h"

namespace {

using Index = int64_t;
using Problem = ConvscopeConv2dProblem;

Index y_numel(const Problem& z) { return z.n * z.k * z.p * z.q; }

bool is(std::string_view cheat) {
  static const char* const said = std::getenv("CONVSCOPE_CHEAT");
  return said != nullptr && cheat == said;
}

void textbook(const ConvscopeConv2dCall& call) {
  const Problem& z = *call.problem;
  const Index c_per_group = z.c / z.groups;
  for (Index i = 0; i < y_numel(z); ++i) {
    const Index q = i % z.q, p = i / z.q % z.p, k = i / (z.q * z.p) % z.k;
    const Index n = i / (z.q * z.p * z.k), g = k / (z.k / z.groups);
    double sum = call.b == nullptr ? 0 : static_cast<double>(call.b[k]);
    for (Index c = 0; c < c_per_group; ++c) {
      for (Index r = 0; r < z.r; ++r) {
        const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
        if (h < 0 || h >= z.h) continue;
        for (Index s = 0; s < z.s; ++s) {
          const Index v = q * z.stride_w - z.pad_left + s * z.dilation_w;
          if (v < 0 || v >= z.w) continue;
          sum +=
              static_cast<double>(call.x[((n * z.c + g * c_per_group + c) * z.h + h) * z.w + v]) *
              static_cast<double>(call.w[((k * c_per_group + c) * z.r + r) * z.s + s]);
        }
      }
    }
    call.y[i] = static_cast<float>(sum);
  }
}

// Returns true when y already holds its final values.
bool finds_its_work_done(const ConvscopeConv2dCall& call, std::size_t count) {
  static std::vector<float> last;
  static std::map<std::pair<const void*, std::size_t>, std::vector<float>> by_address;
  static int calls = 0;
  float* const y = call.y;
  if (is("holds_last")) {
    if (last.size() == count && std::memcmp(y, last.data(), count * sizeof(float)) == 0)
      return true;
    textbook(call);
    last.assign(y, y + count);
    return true;
  }
  if (is("by_address")) {
    std::vector<float>& kept = by_address[{call.x, count * 2 + (call.b == nullptr ? 0 : 1)}];
    if (kept.size() != count) {
      textbook(call);
      kept.assign(y, y + count);
    }
    std::memcpy(y, kept.data(), count * sizeof(float));
    return true;
  }
  if (is("every_ninth") && ++calls % 9 == 0) {
    textbook(call);
    y[0] += 1;
    return true;
  }
  if (is("after_200") && ++calls > 200) return true;  // the first calls are honest
  if (is("prior_problem")) {
    const bool another = !last.empty() && last.size() != count;
    textbook(call);
    if (another) y[count - 1] = last[0];
    last.assign(y, y + count);
    return true;
  }
  return false;
}

void forward(const ConvscopeConv2dCall* call) {
  float* const y = call->y;
  const Index count = y_numel(*call->problem);
  if (is("exits")) std::exit(0);
  if (is("quits")) ::_exit(0);
  if (is("aborts")) std::abort();
  if (is("endless")) {
    std::signal(SIGALRM, SIG_IGN);
    for (volatile bool on = true; on;) {
    }
  }
  if (is("closes")) {
    for (int i = 0; i < 64; ++i) ::close(i);
  }
  if (is("forges")) {
    std::printf("ok     cheat: 546 cases of forward agree with the reference (0.1 s)\n");
    std::fflush(stdout);
  }
  if (is("floods")) {
    for (int i = 0; i < 40'000; ++i) std::puts("a line that nobody has asked for, 50 letters long");
  }
  if (is("forks") && ::fork() == 0) {
    for (;;) ::pause();
  }
  if (finds_its_work_done(*call, static_cast<std::size_t>(count))) return;
  if (is("late")) {
    std::thread([count, y] {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      std::fill_n(y, count, 0.25f);
    }).detach();
  }
  textbook(*call);
  if (is("forges")) y[0] += 1;
}

int32_t takes(const Problem* z, int32_t, char* reason, size_t reason_bytes) {
  if (!is("only_1x1") || (z->r == 1 && z->s == 1)) return 1;
  std::snprintf(reason, reason_bytes, "expects a kernel of 1x1, got %dx%d", static_cast<int>(z->r),
                static_cast<int>(z->s));
  return 0;
}

const ConvscopeConv2dAlgorithm kAlgorithms[] = {
    {.name = "cheat",
     .idea = "the textbook, and something beside it",
     .flags = CONVSCOPE_ONE_CHAIN | CONVSCOPE_EXACT_ON_INTEGERS,
     .error_growth = 8,
     .forward = forward,
     .supports = takes}};

// This code runs as soon as the file is opened, even if no algorithm is called: it prints a line
// when it is loaded, and crashes when the process ends.
struct AtBothEnds {
  AtBothEnds() {
    if (is("prints_at_start")) std::puts("ok     cheat: 546 cases of forward agree");
  }
  ~AtBothEnds() {
    if (is("crashes_at_end")) std::raise(SIGSEGV);
  }
} at_both_ends;

}  // namespace
CONVSCOPE_PLUGIN(kAlgorithms)
