// SPDX-License-Identifier: Apache-2.0
// peer_target.h: a fuzz target in the form of a plug-in (experiments/bench/peer.h). The fuzzer's
// bytes determine the plug-in's table, texts, numbers and results. Writes beyond its buffers are
// not simulated, because the program cannot prevent them.
// tests/experiments/bench/bad_plugins_test.cpp covers other defects.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/conv2d_bench.h"
#include "experiments/bench/peer_check.h"
#include "framework/check.h"
#include "tests/fuzz/target.h"

namespace convscope::testing {

// Holds the bytes that are not used yet. If none are left, peer_byte() returns 0.
inline Bytes& peer_bytes() {
  static Bytes left;
  return left;
}
inline std::uint8_t peer_byte() {
  Bytes& left = peer_bytes();
  if (left.empty()) return 0;
  const std::uint8_t out = left[0];
  left = left.subspan(1);
  return out;
}
inline std::uint64_t peer_number() {
  std::uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out = out << 8 | peer_byte();
  return out;
}
// Returns false for one byte in eight: the answer is missing.
inline bool peer_has() { return peer_byte() % 8 != 7; }
inline const char* peer_text() {
  static const char* const texts[] = {"direct", "", "\x1b[31m", "a,b|c\n", "\xff\xfe"};
  return peer_has() ? texts[peer_byte() % 5] : nullptr;
}
inline void peer_may_throw() {
  if (peer_byte() == 0xEE) throw std::runtime_error("on purpose");
}

template <class Function>
Function peer_function(Function function) {
  return peer_byte() == 0xDD ? nullptr : function;
}

inline const ConvscopePeer* drawn_peer() {
  static ConvscopePeer peer;
  static ConvscopePeerVariant variants[4];
  if (peer_byte() == 0xCC) return nullptr;
  peer = {};
  peer.abi = peer_has() ? CONVSCOPE_PEER_ABI : static_cast<std::int32_t>(peer_number());
  peer.name = peer_text();
  peer.version = peer_text();
  peer.device = peer_text();
  peer.variant_count =
      peer_has() ? peer_byte() % 5 : static_cast<std::int32_t>(peer_number() | 1u << 31);
  for (ConvscopePeerVariant& variant : variants) {
    variant.algorithm = peer_text();
    variant.layout = peer_byte() % 3;
    variant.error_growth = peer_has() ? 4 : std::bit_cast<double>(peer_number());
  }
  peer.variants = peer_byte() == 0xBB ? nullptr : variants;
  peer.set_threads = peer_function(+[](std::int32_t) { peer_may_throw(); });
  peer.create = peer_function(+[](const ConvscopePeerProblem*, std::int32_t,
                                  const ConvscopePeerInputs*, char* reason, std::size_t bytes) {
    peer_may_throw();
    static int something = 0;
    if (peer_has()) return reinterpret_cast<ConvscopePeerCase*>(&something);
    std::memset(reason, peer_byte(), peer_number() % (bytes + 1));
    return static_cast<ConvscopePeerCase*>(nullptr);
  });
  peer.run = peer_function(+[](ConvscopePeerCase*) -> std::int32_t {
    peer_may_throw();
    return peer_has() ? 0 : -1;
  });
  peer.read = peer_function(+[](ConvscopePeerCase*, void* output) -> std::int32_t {
    peer_may_throw();
    *static_cast<float*>(output) = std::bit_cast<float>(static_cast<std::uint32_t>(peer_number()));
    return peer_has() ? 0 : 1;
  });
  peer.implementation = peer_function(+[](ConvscopePeerCase*) {
    peer_may_throw();
    return peer_text();
  });
  peer.workspace_bytes = peer_function(+[](ConvscopePeerCase*) -> std::size_t {
    peer_may_throw();
    return peer_number();
  });
  peer.destroy = peer_function(+[](ConvscopePeerCase*) { peer_may_throw(); });
  return &peer;
}

inline void bench_drawn_peer(Bytes bytes) {
  peer_bytes() = bytes;
  const ConvscopePeer* const peer = drawn_peer();
  if (!problem_of_peer(peer).empty()) return;
  Conv2dBenchOptions options;
  options.min_seconds = 1e-9;
  options.least_samples = 1;
  options.peer = peer;
  const Conv2dBenchGroup group = bench_conv2d(options, Conv2dProblem::parse("n=1,c=1,h=1,w=1,k=1"),
                                              Direction::forward, [](const std::string&) {});
  bench_table(group);
  BenchReportSettings settings;
  settings.peer_name = peer->name;
  settings.peer_version = peer->version;
  bench_json({group}, settings);
}

inline std::vector<FuzzTarget> peer_targets() {
  return {{"peer", bench_drawn_peer, [] {
             return std::vector<std::string>{std::string(64, '\1'),
                                             std::string("\0\0\0\0\0\0\0\0\0\4", 10)};
           }}};
}

}  // namespace convscope::testing
