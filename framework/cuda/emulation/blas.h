// SPDX-License-Identifier: Apache-2.0
// blas.h: replaces <cublas_v2.h>. blas.cpp computes the functions of framework/cuda/blas.cuh with
// plain loops.
#pragma once

#include "framework/cuda/blas.cuh"
