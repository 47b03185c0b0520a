// SPDX-License-Identifier: Apache-2.0
// error_phase.h: gives a refused argument the kind of the phase that it stopped. A library function
// does not know who called it: the same refusal is a mistake of the config, of the data or a run
// that failed.
#pragma once

#include <string_view>

#include "framework/check.h"

namespace convscope {

// Throws the same operation and sentence as another kind of error.
[[noreturn]] inline void rethrow_as(ErrorKind kind, const Error& error) {
  const std::string_view text = error.what();  // "[operation] sentence"
  const std::size_t end = text.find("] ");
  if (!text.starts_with("[") || end == std::string_view::npos) fail(kind, "run", text);
  fail(kind, text.substr(1, end - 1), text.substr(end + 2));
}

// Returns what `body` returns. A refused argument (ErrorKind::kInvalid) becomes an error of `kind`;
// all other errors pass.
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
