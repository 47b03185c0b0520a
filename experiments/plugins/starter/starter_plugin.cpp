// SPDX-License-Identifier: Apache-2.0
// starter_plugin.cpp: the initial files of a new plug-in.
#include "experiments/plugins/starter/starter_plugin.h"

#include <algorithm>
#include <filesystem>

#include "experiments/plugins/algorithm_check.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/plugin/plugin_facts.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSource = R"(// @NAME@.cpp: a custom convolution algorithm.
//
// Formula    y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of w[k,c,r,s] x[n,g C/G + c,h,v],
//            h = p stride_h - pad_top + r dilation_h, v = q stride_w - pad_left + s dilation_w,
//            g = k / (K/G); outside of the image x is 0
// Method     initially one product after the other, in all three directions. A product that
//            carried a number from x to y carries a gradient from y back to x, and one to w.
// Next       change one thing, build, `convscope check`. Ideas: accumulators in registers; a loop
//            order that reads x and w in rows; parallel_for (framework/parallel.h).
#include <layers/conv2d/plugin.h>
#include <layers/conv2d/shared/lesson.h>

namespace convscope {
namespace {

using Index = std::int64_t;

// One product of the convolution: which element of y, of w and of x.
struct Product {
  Index n, k, p, q;  // y[n,k,p,q]
  Index c, r, s;     // w[k,c,r,s]
  Index from, h, v;  // x[n,from,h,v]; v runs along the row
};

// Calls visit(product) for each product whose x is inside the image; in the padding x is 0.
void for_each_product(const Conv2dProblem& z, auto visit) {
  for (Index n = 0; n < z.n; ++n) {
    for (Index k = 0; k < z.k; ++k) {
      const Index g = k / z.k_per_group();  // output channel k reads the channels of its group
      for (Index p = 0; p < z.p(); ++p) {
        for (Index q = 0; q < z.q(); ++q) {
          for (Index c = 0; c < z.c_per_group(); ++c) {
            for (Index r = 0; r < z.r; ++r) {
              const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
              if (h < 0 || h >= z.h) continue;
              for (Index s = 0; s < z.s; ++s) {
                const Index v = q * z.stride_w - z.pad_left + s * z.dilation_w;
                if (v < 0 || v >= z.w) continue;
                visit(Product{n, k, p, q, c, r, s, g * z.c_per_group() + c, h, v});
              }
            }
          }
        }
      }
    }
  }
}

// x, w, y and the gradients are views with four axes: x(n, c, h, w) is an element, x[n] a part.
struct Mine {
  static void forward(const Conv2dProblem& z, auto x, auto w, auto b, auto y, auto&) {
    for (Index n = 0; n < z.n; ++n) {
      for (Index k = 0; k < z.k; ++k) y[n][k].fill(b.or_zero(k));  // y is assigned; b may be empty
    }
    for_each_product(z, [&](const Product& i) {
      y(i.n, i.k, i.p, i.q) += w(i.k, i.c, i.r, i.s) * x(i.n, i.from, i.h, i.v);
    });
  }

  static void backward_data(const Conv2dProblem& z, auto dy, auto w, auto dx, auto&) {
    dx.fill(0);  // dx is assigned
    for_each_product(z, [&](const Product& i) {
      dx(i.n, i.from, i.h, i.v) += w(i.k, i.c, i.r, i.s) * dy(i.n, i.k, i.p, i.q);
    });
  }

  // dw holds zeros here, or the sum so far: it is added to.
  static void backward_weight(const Conv2dProblem& z, auto x, auto dy, auto dw, auto&) {
    for_each_product(z, [&](const Product& i) {
      dw(i.k, i.c, i.r, i.s) += dy(i.n, i.k, i.p, i.q) * x(i.n, i.from, i.h, i.v);
    });
  }
};

// The algorithm's table entry: its name, what it accepts, its cost and its error bound. Each field
// is explained in layers/dispatch/algorithm.h.
const Conv2dAlgorithm kAlgorithm{
    .name = "@NAME@",
    .device = DeviceType::cpu,
    .idea = "my own: one product after the other",
    .paper = "",
    // Yes, or no with a sentence: Conv2dSupport::no(cat("expects stride 1, got ", z.stride_h)).
    .supports = [](const Conv2dProblem& z, Direction) { return lesson_takes(z.dtype); },
    .cost = one_product_in<8>,            // cycles for a product: by this `auto` compares
    .workspace_bytes = empty_blackboard,  // none
    .error_growth = 8,                    // |error| <= 8 eps max(conv(|x|,|w|)) ...
    .one_chain = true,                    // ... times sqrt(terms / 160): one sum, term after term
    .exact_on_integers = true,
    .auto_ok = false,  // true: `auto` and `measure` may choose it
    .forward = unwatched<Mine>,
    .backward_data = unwatched<Mine>,
    .backward_weight = unwatched<Mine>,
};

// For `convscope bench conv2d --ladder @NAME@`: the steps from the lesson to the fastest algorithm.
const Conv2dLadder kLadder{
    .name = "@NAME@",
    .device = DeviceType::cpu,
    .problem = "n=1,c=64,h=28,w=28,k=64,r=3,s=3,pad=1",
    .rungs = {{.algorithm = "direct_lesson", .threads = 1, .sentence = "the textbook"},
              {.algorithm = "@NAME@", .threads = 1, .sentence = "what mine adds to it"},
              {.algorithm = "direct", .threads = 1, .sentence = "accumulators stay in registers"}},
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_PLUGIN(convscope::kAlgorithm, convscope::kLadder)
)";

constexpr std::string_view kCMake = R"(# @NAME@.so: a plug-in with one convolution algorithm.
cmake_minimum_required(VERSION 3.25)
project(@NAME@ LANGUAGES CXX)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
@FIND@
add_library(@NAME@ MODULE @NAME@.cpp)
target_link_libraries(@NAME@ PRIVATE convscope::convscope)
# -march=native: vectors of this CPU, for a file that runs only here.
target_compile_options(@NAME@ PRIVATE -Wall -Wextra)
set_target_properties(@NAME@ PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
)";

constexpr std::string_view kReadme = R"(# @NAME@

A custom convolution algorithm, outside of convscope's repository. `@NAME@.cpp` holds its table
entry and its three directions.

```
cmake -S . -B build && cmake --build build
convscope check conv2d @NAME@ --plugin build/@NAME@.so
convscope bench conv2d --ladder @NAME@ --plugin build/@NAME@.so
convscope explain quickstart conv.algorithm=@NAME@ --plugin build/@NAME@.so --layer c2
convscope run quickstart conv.algorithm=@NAME@ --plugin build/@NAME@.so
```

`check` compares it with the reference: every stride, dilation, padding and group, integers and
rounded numbers, one thread and several. It reports in a sentence what seems to be wrong. With
`--quick` it takes a second.

In a config: `plugins: [build/@NAME@.so]`, relative to the config. Then no command needs `--plugin`.
)";

std::string filled_in(std::string_view form, const std::string& name, const std::string& find) {
  std::string out(form);
  const auto replace = [&](std::string_view word, const std::string& by) {
    for (std::size_t at = 0; (at = out.find(word, at)) != std::string::npos; at += by.size()) {
      out.replace(at, word.size(), by);
    }
  };
  replace("@FIND@", find);
  replace("@NAME@", name);
  return out;
}

// Returns a path in quotes for a CMake file.
std::string quoted(const std::string& path) {
  std::string out;
  for (const char c : path) {
    if (c == '"' || c == '\\' || c == '$') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::vector<StarterFile> starter_plugin(const std::string& name, const std::string& package) {
  std::string find;
  if (!package.empty()) {
    find = "# The convscope that wrote this file; -Dconvscope_DIR=... names another one.\n";
  }
  find += cat("find_package(convscope ", kPluginLibrary, " REQUIRED",
              package.empty() ? "" : cat(" HINTS \"", quoted(package), "\""), ")");
  return {{name + ".cpp", filled_in(kSource, name, find)},
          {"CMakeLists.txt", filled_in(kCMake, name, find)},
          {"README.md", filled_in(kReadme, name, find)}};
}

std::string package_of_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  for (const char* const way : {CONVSCOPE_PACKAGE_FROM_PROGRAM, ".."}) {
    const fs::path folder = (program.parent_path() / way).lexically_normal();
    if (fs::exists(folder / "convscopeConfig.cmake", error)) return folder.string();
  }
  return "";
}

std::string problem_of_new_name(const std::string& name) {
  std::string problem = problem_of_name(name);
  if (!problem.empty()) return problem;
  for (const char* const word : {"all", "test", "clean", "install", "package", "help", "depend",
                                 "edit_cache", "rebuild_cache", "convscope"}) {
    if (name == word) return "another name, because CMake has this one";
  }
  if (conv2d_algorithms(DeviceType::cpu).find(name) != nullptr) {
    return "another name, because an algorithm of convscope has this one";
  }
  return "";
}

}  // namespace convscope
