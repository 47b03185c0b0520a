// SPDX-License-Identifier: Apache-2.0
// peer_library.h: finds and opens the plug-in of another library (peer.h).
#pragma once

#include <string>

#include "experiments/bench/peer.h"
#include "framework/export.h"

namespace convscope {

// libconvscope_peer_<name>.so beside libconvscope.so, or in the folder CONVSCOPE_PEER_DIR. An error
// of kind kUnavailable that says what to install when it is not there or does not fit. A plug-in
// stays open until the process ends.
CONVSCOPE_API const ConvscopePeer& open_peer(const std::string& name);

// A sentence when the library that runs is older than the one that comparisons are meant to name;
// "" otherwise.
CONVSCOPE_API std::string age_remark(const ConvscopePeer& peer);

}  // namespace convscope
