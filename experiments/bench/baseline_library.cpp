// SPDX-License-Identifier: Apache-2.0
// baseline_library.cpp: finds and opens the plug-in of another library (baseline.h).
#include "experiments/bench/baseline_library.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "experiments/bench/baseline_check.h"
#include "framework/check.h"
#include "framework/io/former_names.h"

namespace convscope {
namespace {

// What an error message says about a baseline: how to install the plug-in, and which version
// comparisons should use.
struct KnownBaseline {
  const char* name;
  int major, minor;
  const char* how;
  const char* package;  // the system's, an older version
};
constexpr KnownBaseline kKnownBaselines[] = {
    {"onednn", 3, 2, "run experiments/baselines/setup.py, configure and build again",
     " (Debian has an older one: apt-get install libdnnl-dev)"},
};

std::filesystem::path plugin_folder() {
  for (const char* variable : {"CONVSCOPE_BASELINE_DIR", "CONVSCOPE_PEER_DIR"}) {
    const char* const given = std::getenv(variable);
    if (given == nullptr || *given == '\0') continue;
    if (variable != std::string_view("CONVSCOPE_BASELINE_DIR")) {
      warn_of_former_name(variable, "CONVSCOPE_BASELINE_DIR");
    }
    return given;
  }
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&plugin_folder), &here) != 0 && here.dli_fname != nullptr) {
    return std::filesystem::path(here.dli_fname).parent_path();
  }
  return ".";
}

[[noreturn]] void fail_unavailable(const std::string& name, const std::string& sentence) {
  fail(ErrorKind::kUnavailable, "baseline", cat("expected the baseline '", name, "', ", sentence));
}

}  // namespace

const ConvscopeBaseline& open_baseline(const std::string& name) {
  std::string how, names;
  for (const KnownBaseline& known : kKnownBaselines) {
    names += cat(names.empty() ? "" : ", ", known.name);
    if (name == known.name) how = cat(known.how, known.package);
  }
  if (how.empty()) {
    fail(ErrorKind::kUnavailable, "baseline",
         cat("expected a baseline (", names, "), got '", name, "'"));
  }
  const std::filesystem::path path = plugin_folder() / cat("libconvscope_baseline_", name, ".so");
  if (!std::filesystem::exists(path)) {
    fail_unavailable(
        name, cat("but this build has no plug-in for it (looked for ", path.string(), "): ", how));
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    fail_unavailable(name, cat("but its plug-in cannot be opened: ", why, "; ", how));
  }
  using Entry = const ConvscopeBaseline* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "convscope_baseline"));
  const auto refuse = [&](const std::string& problem) {
    fail_unavailable(name,
                     cat("but ", path.string(), " is not a plug-in of this version: it ", problem));
  };
  if (entry == nullptr) refuse("exports no convscope_baseline()");
  const ConvscopeBaseline* baseline = nullptr;
  try {
    baseline = entry();
  } catch (...) {  // it is a C function
    refuse("ends convscope_baseline() with an exception");
  }
  const std::string problem = problem_of_baseline(baseline);
  if (!problem.empty()) refuse(problem);
  return *baseline;
}

std::string age_remark(const ConvscopeBaseline& baseline) {
  std::pair<int, int> here{0, 0};
  if (std::sscanf(baseline.version, "%d.%d", &here.first, &here.second) != 2) return "";
  for (const KnownBaseline& known : kKnownBaselines) {
    if (known.name != std::string(baseline.name) || here >= std::pair{known.major, known.minor})
      continue;
    return cat("the baseline is only ", baseline_title(baseline), ", older than ", known.major, ".",
               known.minor, ": ", known.how);
  }
  return "";
}

}  // namespace convscope
