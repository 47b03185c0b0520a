// SPDX-License-Identifier: Apache-2.0
// runtime.h: replaces <cuda_runtime.h>. It declares, in C++, the part of CUDA that this project
// uses. So an ordinary compiler accepts the same *_cuda.cu files, and a CPU runs them in tests.
// README.md lists the errors that the emulation shows and those that it cannot show.
#pragma once

#include "framework/cuda/emulation/host_api.h"
#include "framework/cuda/emulation/intrinsics.h"
#include "framework/cuda/emulation/language.h"
#include "framework/cuda/emulation/threads.h"
