// SPDX-License-Identifier: Apache-2.0
// nccl_library.h: opens NCCL, NVIDIA's collectives for GPUs, on demand. So one program runs on
// machines with and without NCCL, and the build needs neither its header nor its library.
//
// The table holds the functions that the project uses, as <nccl.h> declares them. Communicators and
// streams are pointers, enumerations are ints. The names have been the same since NCCL 2.13 (2022).
#pragma once

#include <cstddef>
#include <string>

#include "framework/export.h"

namespace convscope {

struct NcclLibrary {
  using Comm = void*;    // ncclComm_t
  using Stream = void*;  // cudaStream_t
  struct UniqueId {      // ncclUniqueId: the rendezvous of a group
    char bytes[128];
  };
  static constexpr int kSuccess = 0;              // ncclSuccess
  static constexpr int kSum = 0;                  // ncclSum
  static constexpr int kFloat32 = 7;              // ncclFloat32
  static constexpr int kScalarHostImmediate = 1;  // the scalar is read before the call returns

  std::string file;     // the opened file
  std::string version;  // "2.28.9"
  // The replacement in tests (framework/cuda/emulation/nccl.cpp).
  bool is_emulated = false;

  // Functions; every int result is an error code.
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

// Opens the first of these: CONVSCOPE_NCCL_LIBRARY, the system's libnccl.so.2, or the NCCL of
// PyTorch in the active Python environment. Returns null, with the reason in `why_not`, if none can
// be opened. The library stays open.
CONVSCOPE_API const NcclLibrary* open_nccl_library(std::string* why_not);

}  // namespace convscope
