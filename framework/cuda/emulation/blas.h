// SPDX-License-Identifier: Apache-2.0
// blas.h: replaces <cublas_v2.h>: the functions of framework/cuda/blas.cuh as plain loops
// (blas.cpp).
#pragma once

#include "framework/cuda/blas.cuh"
