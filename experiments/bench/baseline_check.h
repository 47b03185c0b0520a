// SPDX-License-Identifier: Apache-2.0
// baseline_check.h: checks that the table of a plug-in (baseline.h) is complete, that the strings
// in it are terminated, and that its functions throw no exception.
#pragma once

#include <exception>
#include <string>

#include "experiments/bench/baseline.h"
#include "framework/check.h"

namespace convscope {

// Returns "", or what is wrong with a table, worded as the end of a sentence ("has no function
// run").
CONVSCOPE_API std::string problem_of_baseline(const ConvscopeBaseline* baseline);

// Returns the name and version of the baseline, as its rows show them: "onednn 3.2.0".
inline std::string baseline_title(const ConvscopeBaseline& baseline) {
  return cat(baseline.name, " ", baseline.version);
}

// Calls one of the baseline's functions. C has no exceptions, so an exception becomes an error of
// kind kRun that names the function.
template <class Call>
auto ask_baseline(const ConvscopeBaseline& baseline, const char* function, Call&& call) {
  const auto threw = [&](const char* what) {
    fail(ErrorKind::kRun, "baseline",
         cat("expected ", function, "() of ", baseline.name,
             " to return, got an exception: ", what));
  };
  try {
    return call();
  } catch (const std::exception& error) {
    threw(error.what());
  } catch (...) {
    threw("of an unknown type");
  }
  return decltype(call()){};  // not reached
}

}  // namespace convscope
