// SPDX-License-Identifier: Apache-2.0
// peer_check.h: checks that the table of a plug-in (peer.h) is complete, that its texts are
// terminated, and that its functions throw no exception.
#pragma once

#include <exception>
#include <string>

#include "experiments/bench/peer.h"
#include "framework/check.h"

namespace convscope {

// Returns "" or what is wrong with a table, as the end of a sentence ("has no function run").
CONVSCOPE_API std::string problem_of_peer(const ConvscopePeer* peer);

// Returns name and version as shown in each of its rows: "onednn 3.2.0".
inline std::string peer_title(const ConvscopePeer& peer) {
  return cat(peer.name, " ", peer.version);
}

// Calls one of the baseline's functions. C has no exceptions, so an exception becomes an error of
// kind kRun that names the function.
template <class Call>
auto ask_peer(const ConvscopePeer& peer, const char* function, Call&& call) {
  const auto threw = [&](const char* what) {
    fail(ErrorKind::kRun, "peer",
         cat("expected ", function, "() of ", peer.name, " to return, got an exception: ", what));
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
