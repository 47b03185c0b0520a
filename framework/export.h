// SPDX-License-Identifier: Apache-2.0
// export.h: the macro CONVSCOPE_API, which exports a symbol from the shared library. Symbols
// without it are hidden.
#pragma once

#define CONVSCOPE_API __attribute__((visibility("default")))
