// SPDX-License-Identifier: Apache-2.0
// error_phase.h: changes the kind of an invalid-argument error. A library function does not know
// its caller: the same invalid argument can come from the config, from the data, or from a failed
// run. The caller knows, and sets the matching kind.
#pragma once

#include <string_view>

#include "framework/check.h"

namespace convscope {

// Throws an Error of another kind, with the operation and the sentence of the given error.
[[noreturn]] inline void rethrow_as(ErrorKind kind, const Error& error) {
  const std::string_view text = error.what();  // "[operation] sentence"
  const std::size_t end = text.find("] ");
  if (!text.starts_with("[") || end == std::string_view::npos) fail(kind, "run", text);
  fail(kind, text.substr(1, end - 1), text.substr(end + 2));
}

// Returns the result of `body`. If `body` throws an error of kind kInvalid, rethrows it as an error
// of `kind`. Other errors pass unchanged.
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
