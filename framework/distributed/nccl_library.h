// SPDX-License-Identifier: Apache-2.0
// nccl_library.h: NCCL, NVIDIA's sums over GPUs, opened when it is needed. So one program runs with
// it and on machines without it, and the build needs neither its header nor its file.
//
// The table holds what is called, as <nccl.h> declares it. A communicator and a stream are pointers
// there, and its enumerations are ints. The names have been the same since NCCL 2.13 (2022).
#pragma once

#include <cstddef>
#include <string>

#include "framework/export.h"

namespace convscope {

struct NcclLibrary {
  using Comm = void*;    // ncclComm_t
  using Stream = void*;  // cudaStream_t
  struct UniqueId {      // ncclUniqueId: where the processes of a group meet
    char bytes[128];
  };
  static constexpr int kSuccess = 0;              // ncclSuccess
  static constexpr int kSum = 0;                  // ncclSum
  static constexpr int kFloat32 = 7;              // ncclFloat32
  static constexpr int kScalarHostImmediate = 1;  // the scalar is read before the call returns

  std::string file;     // that was opened
  std::string version;  // "2.28.9"
  // The stand-in of the tests (framework/cuda/emulation/nccl.cpp).
  bool is_emulated = false;

  // Every int that is returned is an error code.
  int (*get_version)(int* version) = nullptr;
  int (*get_unique_id)(UniqueId* id) = nullptr;
  int (*comm_init_rank)(Comm* comm, int ranks, UniqueId id, int rank) = nullptr;
  int (*comm_destroy)(Comm comm) = nullptr;
  int (*comm_abort)(Comm comm) = nullptr;
  int (*comm_get_async_error)(Comm comm, int* error) = nullptr;
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int op, Comm comm,
                    Stream stream) = nullptr;
  int (*red_op_create_pre_mul_sum)(int* op, void* scalar, int type, int residence,
                                   Comm comm) = nullptr;
  int (*red_op_destroy)(int op, Comm comm) = nullptr;
  const char* (*get_error_string)(int error) = nullptr;
  const char* (*get_last_error)(Comm comm) = nullptr;
};

// Opens CONVSCOPE_NCCL_LIBRARY, or libnccl.so.2 of the system, or that of PyTorch's packages in the
// Python environment that is active. Null: none of them; `why_not` says why. It stays open.
CONVSCOPE_API const NcclLibrary* open_nccl_library(std::string* why_not);

}  // namespace convscope
