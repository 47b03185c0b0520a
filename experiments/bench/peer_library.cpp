// SPDX-License-Identifier: Apache-2.0
// peer_library.cpp: finds and opens the plug-in of another library (peer.h).
#include "experiments/bench/peer_library.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "experiments/bench/peer_check.h"
#include "framework/check.h"

namespace convscope {
namespace {

// What a person has to do to get the plug-in, and the version that comparisons are meant to name.
struct KnownPeer {
  const char* name;
  int major, minor;
  const char* how;
  const char* package;  // of the system, older
};
constexpr KnownPeer kKnownPeers[] = {
    {"onednn", 3, 2, "run experiments/peers/setup.py, configure and build again",
     " (Debian has an older one: apt-get install libdnnl-dev)"},
};

std::filesystem::path plugin_folder() {
  if (const char* given = std::getenv("CONVSCOPE_PEER_DIR"); given != nullptr && *given != '\0') {
    return given;
  }
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&plugin_folder), &here) != 0 && here.dli_fname != nullptr) {
    return std::filesystem::path(here.dli_fname).parent_path();
  }
  return ".";
}

[[noreturn]] void fail_unavailable(const std::string& name, const std::string& sentence) {
  fail(ErrorKind::kUnavailable, "peer", cat("expected the baseline '", name, "', ", sentence));
}

}  // namespace

const ConvscopePeer& open_peer(const std::string& name) {
  std::string how, names;
  for (const KnownPeer& known : kKnownPeers) {
    names += cat(names.empty() ? "" : ", ", known.name);
    if (name == known.name) how = cat(known.how, known.package);
  }
  if (how.empty()) {
    fail(ErrorKind::kUnavailable, "peer",
         cat("expected a baseline (", names, "), got '", name, "'"));
  }
  const std::filesystem::path path = plugin_folder() / cat("libconvscope_peer_", name, ".so");
  if (!std::filesystem::exists(path)) {
    fail_unavailable(
        name, cat("but this build has no plug-in for it (looked for ", path.string(), "): ", how));
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    fail_unavailable(name, cat("but its plug-in cannot be opened: ", why, "; ", how));
  }
  using Entry = const ConvscopePeer* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "convscope_peer"));
  const auto refuse = [&](const std::string& problem) {
    fail_unavailable(name,
                     cat("but ", path.string(), " is not a plug-in of this version: it ", problem));
  };
  if (entry == nullptr) refuse("exports no convscope_peer()");
  const ConvscopePeer* peer = nullptr;
  try {
    peer = entry();
  } catch (...) {  // it is a C function
    refuse("ends convscope_peer() with an exception");
  }
  const std::string problem = problem_of_peer(peer);
  if (!problem.empty()) refuse(problem);
  return *peer;
}

std::string age_remark(const ConvscopePeer& peer) {
  std::pair<int, int> here{0, 0};
  if (std::sscanf(peer.version, "%d.%d", &here.first, &here.second) != 2) return "";
  for (const KnownPeer& known : kKnownPeers) {
    if (known.name != std::string(peer.name) || here >= std::pair{known.major, known.minor})
      continue;
    return cat("the baseline is only ", peer_title(peer), ", older than ", known.major, ".",
               known.minor, ": ", known.how);
  }
  return "";
}

}  // namespace convscope
