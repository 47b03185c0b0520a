// SPDX-License-Identifier: Apache-2.0
// error_phase.h: turns a refused argument into an error of the phase in which it occurred. A
// library function does not know its caller: the same refusal can be a mistake in the config, a
// mistake in the data, or a failed run.
#pragma once

#include <string_view>

#include "framework/check.h"

namespace convscope {

// Throws an Error of another kind with the same operation and sentence.
[[noreturn]] inline void rethrow_as(ErrorKind kind, const Error& error) {
  const std::string_view text = error.what();  // "[operation] sentence"
  const std::size_t end = text.find("] ");
  if (!text.starts_with("[") || end == std::string_view::npos) fail(kind, "run", text);
  fail(kind, text.substr(1, end - 1), text.substr(end + 2));
}

// Returns the result of `body`. Rethrows a refused argument (ErrorKind::kInvalid) as an error of
// `kind`. All other errors pass unchanged.
template <class Body>
decltype(auto) in_phase(ErrorKind kind, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInvalid) throw;
    rethrow_as(kind, error);
  }
}

}  // namespace convscope
