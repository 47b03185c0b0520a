// SPDX-License-Identifier: Apache-2.0
// starter_plugin.cpp: the initial files of a new plug-in.
#include "experiments/plugins/starter/starter_plugin.h"

#include <algorithm>
#include <filesystem>

#include "experiments/plugins/algorithm_check.h"
#include "layers/conv2d/algorithm.h"

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
#include <layers/plugin/plugin.h>

#include <algorithm>

namespace {

// One product of the convolution: the position of its element in y, in w and in x.
struct Product {
  int64_t y, w, x;
};

// Calls visit(product) for each product whose x is inside the image; in the padding x is 0.
void for_each_product(const ConvscopeConv2dProblem& z, auto visit) {
  const int64_t c_per_group = z.c / z.groups, k_per_group = z.k / z.groups;
  for (int64_t n = 0; n < z.n; ++n) {
    for (int64_t k = 0; k < z.k; ++k) {
      const int64_t g = k / k_per_group;  // output channel k reads the channels of its group
      for (int64_t p = 0; p < z.p; ++p) {
        for (int64_t q = 0; q < z.q; ++q) {
          for (int64_t c = 0; c < c_per_group; ++c) {
            for (int64_t r = 0; r < z.r; ++r) {
              const int64_t h = p * z.stride_h - z.pad_top + r * z.dilation_h;
              if (h < 0 || h >= z.h) continue;
              for (int64_t s = 0; s < z.s; ++s) {
                const int64_t v = q * z.stride_w - z.pad_left + s * z.dilation_w;
                if (v < 0 || v >= z.w) continue;
                visit(Product{((n * z.k + k) * z.p + p) * z.q + q,
                              ((k * c_per_group + c) * z.r + r) * z.s + s,
                              ((n * z.c + g * c_per_group + c) * z.h + h) * z.w + v});
              }
            }
          }
        }
      }
    }
  }
}

void forward(const ConvscopeConv2dCall* call) {
  const ConvscopeConv2dProblem& z = *call->problem;
  for (int64_t i = 0; i < z.n * z.k * z.p * z.q; ++i) {  // y is assigned; b may be null
    call->y[i] = call->b == nullptr ? 0 : call->b[i / (z.p * z.q) % z.k];
  }
  for_each_product(z, [&](const Product& i) { call->y[i.y] += call->w[i.w] * call->x[i.x]; });
}

void backward_data(const ConvscopeConv2dCall* call) {
  const ConvscopeConv2dProblem& z = *call->problem;
  std::fill_n(call->dx, z.n * z.c * z.h * z.w, 0.0f);  // dx is assigned
  for_each_product(z, [&](const Product& i) { call->dx[i.x] += call->w[i.w] * call->dy[i.y]; });
}

void backward_weight(const ConvscopeConv2dCall* call) {
  const ConvscopeConv2dProblem& z = *call->problem;
  if (!call->accumulate) std::fill_n(call->dw, z.k * (z.c / z.groups) * z.r * z.s, 0.0f);
  for_each_product(z, [&](const Product& i) { call->dw[i.w] += call->dy[i.y] * call->x[i.x]; });
}

// What the program knows about the algorithm. layers/plugin/plugin.h explains each field, and
// optional functions: what the algorithm supports, what it costs, its workspace.
const ConvscopeConv2dAlgorithm kAlgorithms[] = {{
    .name = "@NAME@",
    .idea = "my own: one product after the other",
    // CONVSCOPE_ONE_CHAIN: one sum, term after term. With CONVSCOPE_AUTO_OK, `auto` and `measure`
    // may choose it.
    .flags = CONVSCOPE_ONE_CHAIN | CONVSCOPE_EXACT_ON_INTEGERS,
    .error_growth = 8,  // |error| <= 8 eps max(conv(|x|,|w|)) sqrt(terms / 160)
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
}};

// For `convscope bench conv2d --ladder @NAME@`: the steps from the lesson to the fastest algorithm.
const ConvscopeConv2dLadder kLadders[] = {{
    .name = "@NAME@",
    .problem = "n=1,c=64,h=28,w=28,k=64,r=3,s=3,pad=1",
    .rungs = {{.algorithm = "direct_lesson", .sentence = "the textbook", .threads = 1},
              {.algorithm = "@NAME@", .sentence = "what mine adds to it", .threads = 1},
              {.algorithm = "direct", .sentence = "accumulators stay in registers", .threads = 1}},
}};

}  // namespace
CONVSCOPE_PLUGIN_WITH_LADDERS(kAlgorithms, kLadders)
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
  find += cat("find_package(convscope " CONVSCOPE_VERSION " REQUIRED",
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
