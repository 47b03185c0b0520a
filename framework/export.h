// SPDX-License-Identifier: Apache-2.0
// export.h: CONVSCOPE_API marks the exported symbols of the shared library; all others are hidden.
#pragma once

#define CONVSCOPE_API __attribute__((visibility("default")))
