// SPDX-License-Identifier: Apache-2.0
// look_data.h: what a recorder saw, as the script of a page reads it.
#pragma once

#include <string>

#include "experiments/look/look_page.h"
#include "framework/watch/recorder.h"
#include "layers/dispatch/operands.h"

namespace convscope {

// "const data = {...};". Events are columns of little-endian numbers in base64.
std::string look_data(const Look& look, const Recorder& recorder, const Operands& operands);

// "AQID" of the bytes 1, 2, 3 (RFC 4648).
CONVSCOPE_API std::string base64(std::string_view bytes);

}  // namespace convscope
