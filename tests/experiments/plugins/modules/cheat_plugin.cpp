// SPDX-License-Identifier: Apache-2.0
// cheat_plugin.cpp: a plug-in whose algorithm computes correct results but cheats. CONVSCOPE_CHEAT
// names the cheat, which a check or a benchmark must detect.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <thread>
#include <vector>

#include "layers/conv2d/plugin.h"
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

using Index = std::int64_t;

bool is(std::string_view cheat) {
  static const char* const said = std::getenv("CONVSCOPE_CHEAT");
  return said != nullptr && cheat == said;
}

void textbook(const Conv2dProblem& z, const float* x, const float* w, const float* b, float* y) {
  for (Index i = 0; i < z.y_shape().numel(); ++i) {
    const Index q = i % z.q(), p = i / z.q() % z.p(), k = i / (z.q() * z.p()) % z.k;
    const Index n = i / (z.q() * z.p() * z.k), g = k / z.k_per_group();
    double sum = b == nullptr ? 0 : static_cast<double>(b[k]);
    for (Index c = 0; c < z.c_per_group(); ++c) {
      for (Index r = 0; r < z.r; ++r) {
        const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
        if (h < 0 || h >= z.h) continue;
        for (Index s = 0; s < z.s; ++s) {
          const Index v = q * z.stride_w - z.pad_left + s * z.dilation_w;
          if (v < 0 || v >= z.w) continue;
          sum += static_cast<double>(x[((n * z.c + g * z.c_per_group() + c) * z.h + h) * z.w + v]) *
                 static_cast<double>(w[((k * z.c_per_group() + c) * z.r + r) * z.s + s]);
        }
      }
    }
    y[i] = static_cast<float>(sum);
  }
}

// Returns true when y already holds its final values.
bool finds_its_work_done(const Conv2dForwardArgs& args, float* y, std::size_t count) {
  static std::vector<float> last;
  static std::map<std::pair<const void*, std::size_t>, std::vector<float>> by_address;
  static int calls = 0;
  const auto compute = [&] {
    textbook(args.problem, static_cast<const float*>(args.x), static_cast<const float*>(args.w),
             static_cast<const float*>(args.b), y);
  };
  if (is("holds_last")) {
    if (last.size() == count && std::memcmp(y, last.data(), count * sizeof(float)) == 0)
      return true;
    compute();
    last.assign(y, y + count);
    return true;
  }
  if (is("by_address")) {
    std::vector<float>& kept = by_address[{args.x, count * 2 + (args.b == nullptr ? 0 : 1)}];
    if (kept.size() != count) {
      compute();
      kept.assign(y, y + count);
    }
    std::memcpy(y, kept.data(), count * sizeof(float));
    return true;
  }
  if (is("every_ninth") && ++calls % 9 == 0) {
    compute();
    y[0] += 1;
    return true;
  }
  if (is("after_200") && ++calls > 200) return true;  // the first calls are honest
  if (is("prior_problem")) {
    const bool another = !last.empty() && last.size() != count;
    compute();
    if (another) y[count - 1] = last[0];
    last.assign(y, y + count);
    return true;
  }
  return false;
}

void forward(const Conv2dForwardArgs& args) {
  auto* const y = static_cast<float*>(args.y);
  const auto count = static_cast<std::size_t>(args.problem.y_shape().numel());
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
  if (finds_its_work_done(args, y, count)) return;
  if (is("late")) {
    std::thread([problem = args.problem, y] {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      std::fill_n(y, problem.y_shape().numel(), 0.25f);
    }).detach();
  }
  textbook(args.problem, static_cast<const float*>(args.x), static_cast<const float*>(args.w),
           static_cast<const float*>(args.b), y);
  if (is("forges")) y[0] += 1;
}

Conv2dSupport takes(const Conv2dProblem& z, Direction) {
  if (is("only_1x1") && (z.r != 1 || z.s != 1)) {
    return Conv2dSupport::no(cat("expects a kernel of 1x1, got ", z.r, "x", z.s));
  }
  return lesson_takes(z.dtype);
}

Conv2dAlgorithm algorithm() {
  return {.name = "cheat",
          .idea = "the textbook, and something beside it",
          .supports = takes,
          .cost = one_product_in<8>,
          .workspace_bytes = empty_blackboard,
          .error_growth = 8,
          .one_chain = true,
          .exact_on_integers = true,
          .auto_ok = false,
          .forward = forward};
}

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
}  // namespace convscope
CONVSCOPE_CONV2D_PLUGIN(convscope::algorithm())
