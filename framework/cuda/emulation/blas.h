// SPDX-License-Identifier: Apache-2.0
// blas.h: in the place of <cublas_v2.h>: the functions of framework/cuda/blas.cuh as plain loops
// (blas.cpp).
#pragma once

#include "framework/cuda/blas.cuh"
