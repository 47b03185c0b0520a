// SPDX-License-Identifier: Apache-2.0
// bad_peer.cpp: a plug-in with one mistake. The macro BAD_PEER names the mistake, and the file is
// built once for each.
#include <stdexcept>
#include <string_view>

#include "experiments/bench/peer.h"

namespace {

constexpr std::string_view kMistake = BAD_PEER;

ConvscopePeerCase* create(const ConvscopePeerProblem*, int32_t, const ConvscopePeerInputs*, char*,
                          size_t) {
  return nullptr;
}

ConvscopePeer table() {
  static const ConvscopePeerVariant variants[] = {{"direct", CONVSCOPE_PEER_OWN_LAYOUT, 4},
                                                  {nullptr, CONVSCOPE_PEER_PLAIN, 4}};
  ConvscopePeer out{};
  out.abi = CONVSCOPE_PEER_ABI;
  if (kMistake == "other_version") out.abi = CONVSCOPE_PEER_ABI + 1;  // the rest stays empty
  if (kMistake == "other_version" || kMistake == "no_functions") return out;
  out.name = "bad";
  out.version = "1";
  out.device = "cpu";
  out.variant_count = kMistake == "many_variants" ? 2'000'000'000 : 2;
  out.variants = kMistake == "no_variants" ? nullptr : variants;
  out.set_threads = [](int32_t) {};
  out.create = create;
  out.run = [](ConvscopePeerCase*) -> int32_t { return 1; };
  out.read = [](ConvscopePeerCase*, void*) -> int32_t { return 1; };
  out.implementation = [](ConvscopePeerCase*) { return ""; };
  out.workspace_bytes = [](ConvscopePeerCase*) -> size_t { return 0; };
  out.destroy = [](ConvscopePeerCase*) {};
  return out;
}

}  // namespace

#ifndef BAD_PEER_WITHOUT_ENTRY
extern "C" __attribute__((visibility("default"))) const ConvscopePeer* convscope_peer(void) {
  if (kMistake == "throws") throw std::runtime_error("on purpose");
  if (kMistake == "throws_a_number") throw 7;
  if (kMistake == "no_table") return nullptr;
  static const ConvscopePeer peer = table();
  return &peer;
}
#endif
