// SPDX-License-Identifier: Apache-2.0
// nccl_library.cpp: opens NCCL on demand.
#include "framework/distributed/nccl_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <vector>

#include "framework/check.h"
#include "framework/distributed/library_functions.h"

namespace convscope {
namespace {

// Fills the table of functions. Returns "", or the name of a function that the library lacks.
std::string fill(NcclLibrary& nccl, void* library) {
  std::string missing;
  find_function(library, "ncclGetVersion", nccl.get_version, missing);
  find_function(library, "ncclGetUniqueId", nccl.get_unique_id, missing);
  find_function(library, "ncclCommInitRank", nccl.comm_init_rank, missing);
  find_function(library, "ncclCommDestroy", nccl.comm_destroy, missing);
  find_function(library, "ncclCommAbort", nccl.comm_abort, missing);
  find_function(library, "ncclCommGetAsyncError", nccl.comm_get_async_error, missing);
  find_function(library, "ncclAllReduce", nccl.all_reduce, missing);
  find_function(library, "ncclRedOpCreatePreMulSum", nccl.red_op_create_pre_mul_sum, missing);
  find_function(library, "ncclRedOpDestroy", nccl.red_op_destroy, missing);
  find_function(library, "ncclGetErrorString", nccl.get_error_string, missing);
  find_function(library, "ncclGetLastError", nccl.get_last_error, missing);
  if (!missing.empty()) return cat("it has no ", missing);
  nccl.is_emulated = dlsym(library, "convscope_emulates_nccl") != nullptr;
  int version = 0;
  if (nccl.get_version(&version) != NcclLibrary::kSuccess) return "it does not report its version";
  nccl.version = cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  return "";
}

std::vector<std::string> candidates() {
  const char* const named = std::getenv("CONVSCOPE_NCCL_LIBRARY");
  if (named != nullptr && named[0] != '\0') return {named};
  std::vector<std::string> out = {"libnccl.so.2"};
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* const root = std::getenv(variable);
    if (root == nullptr || root[0] == '\0') continue;
    const std::string pattern =
        cat(root, "/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2");
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      for (std::size_t i = 0; i < found.gl_pathc; ++i) out.emplace_back(found.gl_pathv[i]);
    }
    globfree(&found);
  }
  return out;
}

}  // namespace

const NcclLibrary* open_nccl_library(std::string* why_not) {
  static NcclLibrary nccl;
  if (!nccl.file.empty()) return &nccl;
  std::string tried;
  for (const std::string& file : candidates()) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    const std::string why = library == nullptr ? dlerror() : fill(nccl, library);
    if (why.empty()) {
      nccl.file = file;
      return &nccl;
    }
    tried += cat(tried.empty() ? "" : "; ", library == nullptr ? "" : cat(file, ": "), why);
  }
  if (why_not != nullptr) {
    *why_not =
        cat("NCCL could not be opened (", tried,
            "); install it (pip install nvidia-nccl-cu13), or set CONVSCOPE_NCCL_LIBRARY to its "
            "file");
  }
  return nullptr;
}

}  // namespace convscope
