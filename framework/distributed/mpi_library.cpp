// SPDX-License-Identifier: Apache-2.0
// mpi_library.cpp: opens MPI on demand. Contains the constants of two binary interfaces: Open MPI's
// and MPICH's.
#include "framework/distributed/mpi_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "framework/check.h"
#include "framework/distributed/library_functions.h"

namespace convscope {
namespace {

MpiLibrary::Word address(void* library, const char* name, std::string& missing) {
  void* const at = dlsym(library, name);
  if (at == nullptr && missing.empty()) missing = name;
  return reinterpret_cast<MpiLibrary::Word>(at);
}

// Open MPI: a handle is the address of an object in the library.
void set_open_mpi(MpiLibrary& mpi, void* library, std::string& missing) {
  mpi.world = address(library, "ompi_mpi_comm_world", missing);
  mpi.type_byte = address(library, "ompi_mpi_byte", missing);
  mpi.type_float = address(library, "ompi_mpi_float", missing);
  mpi.type_double = address(library, "ompi_mpi_double", missing);
  mpi.op_sum = address(library, "ompi_mpi_op_sum", missing);
  mpi.errors_return = address(library, "ompi_mpi_errors_return", missing);
  mpi.in_place = reinterpret_cast<void*>(1);
  mpi.status_ignore = nullptr;
}

// MPICH: a handle is an int with a fixed number.
void set_mpich(MpiLibrary& mpi) {
  mpi.world = 0x44000000;
  mpi.type_byte = 0x4c00010d;
  mpi.type_float = 0x4c00040a;
  mpi.type_double = 0x4c00080b;
  mpi.op_sum = 0x58000003;
  mpi.errors_return = 0x54000001;
  mpi.in_place = reinterpret_cast<void*>(-1);
  mpi.status_ignore = reinterpret_cast<void*>(1);
}

std::string fill(MpiLibrary& mpi, void* library) {
  std::string missing;
  const bool open_mpi = dlsym(library, "ompi_mpi_comm_world") != nullptr;
  if (open_mpi) {
    set_open_mpi(mpi, library, missing);
  } else {
    set_mpich(mpi);
  }
  find_function(library, "MPI_Init_thread", mpi.init_thread, missing);
  find_function(library, "MPI_Finalize", mpi.finalize, missing);
  find_function(library, "MPI_Abort", mpi.abort, missing);
  find_function(library, "MPI_Comm_rank", mpi.comm_rank, missing);
  find_function(library, "MPI_Comm_size", mpi.comm_size, missing);
  find_function(library, "MPI_Comm_set_errhandler", mpi.comm_set_errhandler, missing);
  find_function(library, "MPI_Error_string", mpi.error_string, missing);
  find_function(library, "MPI_Get_library_version", mpi.get_library_version, missing);
  find_function(library, "MPI_Isend", mpi.isend, missing);
  find_function(library, "MPI_Irecv", mpi.irecv, missing);
  find_function(library, "MPI_Test", mpi.test, missing);
  find_function(library, "MPI_Ibcast", mpi.ibcast, missing);
  find_function(library, "MPI_Iallgather", mpi.iallgather, missing);
  find_function(library, "MPI_Iallreduce", mpi.iallreduce, missing);
  if (!missing.empty()) return cat("it has no ", missing);
  char text[8192] = {};
  int length = 0;
  mpi.get_library_version(text, &length);
  const bool says_open_mpi = std::strstr(text, "Open MPI") != nullptr;
  const bool says_mpich = std::strstr(text, "MPICH") != nullptr ||
                          std::strstr(text, "Intel") != nullptr ||
                          std::strstr(text, "MVAPICH") != nullptr;
  if (open_mpi ? !says_open_mpi : !says_mpich) {
    return cat("it is neither Open MPI nor MPICH but '", text, "'");
  }
  mpi.name = text;
  mpi.name.resize(std::min(mpi.name.find_first_of("\n\t,"), mpi.name.size()));
  while (!mpi.name.empty() && mpi.name.back() == ' ') mpi.name.pop_back();
  return "";
}

std::vector<std::string> candidates(const std::string& wanted) {
  const char* const named = std::getenv("CONVSCOPE_MPI_LIBRARY");
  if (named != nullptr && named[0] != '\0') return {named};
  if (wanted == "Open MPI") return {"libmpi.so.40"};
  if (wanted == "MPICH") return {"libmpich.so.12", "libmpi.so.12"};
  return {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12"};
}

}  // namespace

const MpiLibrary& open_mpi_library(const std::string& wanted) {
  static MpiLibrary mpi;
  if (!mpi.name.empty()) return mpi;
  std::string tried;
  for (const std::string& file : candidates(wanted)) {
    // MPI opens plug-ins later. The plug-ins look up MPI's symbols, so these symbols must be
    // global.
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    const std::string why = library == nullptr ? dlerror() : fill(mpi, library);
    if (why.empty()) return mpi;
    tried += cat(tried.empty() ? "" : "; ", library == nullptr ? "" : cat(file, ": "), why);
  }
  fail(ErrorKind::kUnavailable, "ranks",
       cat("expected an MPI library, because several processes train together, got none (", tried,
           "); install it (Debian and Ubuntu: openmpi-bin), or set CONVSCOPE_MPI_LIBRARY to its "
           "file"));
}

}  // namespace convscope
