// SPDX-License-Identifier: Apache-2.0
// export.h: CONVSCOPE_API marks what the shared library shows; everything else is hidden.
#pragma once

#define CONVSCOPE_API __attribute__((visibility("default")))
