// SPDX-License-Identifier: Apache-2.0
// peer_check.cpp: checks that the table of a plug-in (peer.h) is complete.
#include "experiments/bench/peer_check.h"

#include <cmath>

namespace convscope {
namespace {

constexpr std::int32_t kMaxVariants = 1000;  // oneDNN has six

std::string problem_of_variant(const ConvscopePeerVariant& variant, std::int32_t number) {
  if (variant.algorithm == nullptr) return cat("has no name for variant ", number);
  if (variant.layout != CONVSCOPE_PEER_OWN_LAYOUT && variant.layout != CONVSCOPE_PEER_PLAIN) {
    return cat("has the layout ", variant.layout, " for variant ", number);
  }
  if (!std::isfinite(variant.error_growth) || variant.error_growth < 0) {
    return cat("has the error_growth ", variant.error_growth, " for variant ", number);
  }
  return "";
}

}  // namespace

std::string problem_of_peer(const ConvscopePeer* peer) {
  if (peer == nullptr) return "has no table";
  // The version is checked first, because the layout of another version's table is unknown.
  if (peer->abi != CONVSCOPE_PEER_ABI) {
    return cat("has version ", peer->abi, " of the interface, not ", CONVSCOPE_PEER_ABI);
  }
  const struct {
    const char* name;
    bool there;
  } parts[] = {{"name", peer->name != nullptr},
               {"version", peer->version != nullptr},
               {"device", peer->device != nullptr},
               {"function set_threads", peer->set_threads != nullptr},
               {"function create", peer->create != nullptr},
               {"function run", peer->run != nullptr},
               {"function read", peer->read != nullptr},
               {"function implementation", peer->implementation != nullptr},
               {"function workspace_bytes", peer->workspace_bytes != nullptr},
               {"function destroy", peer->destroy != nullptr}};
  for (const auto& part : parts) {
    if (!part.there) return cat("has no ", part.name);
  }
  const std::int32_t count = peer->variant_count;
  if (count < 0 || count > kMaxVariants) return cat("has ", count, " variants");
  if (count > 0 && peer->variants == nullptr) return "has no variants";
  for (std::int32_t i = 0; i < count; ++i) {
    const std::string problem = problem_of_variant(peer->variants[i], i);
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace convscope
