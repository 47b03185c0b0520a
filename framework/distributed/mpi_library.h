// SPDX-License-Identifier: Apache-2.0
// mpi_library.h: opens MPI on demand. So one program runs with Open MPI, with MPICH, and on
// machines without either.
//
// MPI specifies the names of functions and leaves the binary interface to each library: a
// communicator is a pointer in Open MPI and a number in MPICH. Both kinds of handle fit into a
// machine word and are passed in the same register, so one table of constants per library is
// enough. The interfaces have been stable since Open MPI 1.10 and MPICH 3.1.
// Source: https://www.mpich.org/abi
#pragma once

#include <cstdint>
#include <string>

#include "framework/export.h"

namespace convscope {

struct MpiLibrary {
  using Word = std::intptr_t;  // a handle: communicator, type, operation
  struct Request {
    Word word = 0;
  };

  std::string name;  // "Open MPI v4.1.4, ...", as the library reports it

  // Constants.
  Word world = 0, type_byte = 0, type_float = 0, type_double = 0, op_sum = 0, errors_return = 0;
  void* in_place = nullptr;
  void* status_ignore = nullptr;
  int thread_serialized = 2;

  // These functions return an error code as int; 0 is success.
  int (*init_thread)(int* argc, char*** argv, int required, int* provided) = nullptr;
  int (*finalize)() = nullptr;
  int (*abort)(Word comm, int code) = nullptr;
  int (*comm_rank)(Word comm, int* rank) = nullptr;
  int (*comm_size)(Word comm, int* size) = nullptr;
  int (*comm_set_errhandler)(Word comm, Word handler) = nullptr;
  int (*error_string)(int code, char* text, int* length) = nullptr;
  int (*get_library_version)(char* text, int* length) = nullptr;
  int (*isend)(const void* data, int count, Word type, int to, int tag, Word comm,
               Request* request) = nullptr;
  int (*irecv)(void* data, int count, Word type, int from, int tag, Word comm,
               Request* request) = nullptr;
  int (*test)(Request* request, int* done, void* status) = nullptr;
  int (*ibcast)(void* data, int count, Word type, int root, Word comm, Request* request) = nullptr;
  int (*iallgather)(const void* data, int count, Word type, void* out, int out_count, Word out_type,
                    Word comm, Request* request) = nullptr;
  int (*iallreduce)(const void* data, void* out, int count, Word type, Word op, Word comm,
                    Request* request) = nullptr;
};

// Opens the MPI library. `wanted` is the library that works with the launcher: "Open MPI", "MPICH"
// or "" (either). CONVSCOPE_MPI_LIBRARY names another file. If no file can be opened, throws
// kUnavailable with a list of the files that were tried. The library stays open.
CONVSCOPE_API const MpiLibrary& open_mpi_library(const std::string& wanted);

}  // namespace convscope
