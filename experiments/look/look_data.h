// SPDX-License-Identifier: Apache-2.0
// look_data.h: the events of a recorder as data for the script of a page.
#pragma once

#include <string>

#include "experiments/look/look_page.h"
#include "framework/watch/recorder.h"
#include "layers/dispatch/operands.h"

namespace convscope {

// Returns "const data = {...};". Each property of the events (address, ...) is one array of
// little-endian numbers in base64.
std::string look_data(const Look& look, const Recorder& recorder, const Operands& operands);

// Returns "AQID" for the bytes 1, 2, 3 (RFC 4648).
CONVSCOPE_API std::string base64(std::string_view bytes);

}  // namespace convscope
