// SPDX-License-Identifier: Apache-2.0
// nccl_library_test.cpp: compares the table of functions with <nccl.h>, if installed.
#include "framework/distributed/nccl_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <type_traits>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define CONVSCOPE_HAS_NCCL_H 1
#endif

namespace convscope {
namespace {

#if defined(CONVSCOPE_HAS_NCCL_H)
// Returns whether types A and B are passed alike in a call: all pointers count as equal, and an
// enumeration counts as an int.
template <class A, class B>
constexpr bool kSameForm =
    sizeof(A) == sizeof(B) && alignof(A) == alignof(B) &&
    std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_class_v<A> == std::is_class_v<B>;
template <class R1, class... A1, class R2, class... A2>
constexpr bool same_forms(R1 (*)(A1...), R2 (*)(A2...)) {
  if constexpr (sizeof...(A1) != sizeof...(A2)) {
    return false;
  } else {
    return kSameForm<R1, R2> && (kSameForm<A1, A2> && ...);
  }
}

TEST(NcclLibrary, TableIsThatOfTheHeader) {
  using N = NcclLibrary;
  const N table;
  static_assert(kSameForm<N::Comm, ncclComm_t> && kSameForm<N::Stream, cudaStream_t>);
  static_assert(kSameForm<N::UniqueId, ncclUniqueId>);
  static_assert(std::is_trivially_copyable_v<N::UniqueId>);
  EXPECT_EQ(N::kSuccess, static_cast<int>(ncclSuccess));
  EXPECT_EQ(N::kSum, static_cast<int>(ncclSum));
  EXPECT_EQ(N::kFloat32, static_cast<int>(ncclFloat32));
  EXPECT_EQ(N::kScalarHostImmediate, static_cast<int>(ncclScalarHostImmediate));
  static_assert(same_forms(decltype(table.get_version){}, decltype(&ncclGetVersion){}));
  static_assert(same_forms(decltype(table.get_unique_id){}, decltype(&ncclGetUniqueId){}));
  static_assert(same_forms(decltype(table.comm_init_rank){}, decltype(&ncclCommInitRank){}));
  static_assert(same_forms(decltype(table.comm_destroy){}, decltype(&ncclCommDestroy){}));
  static_assert(same_forms(decltype(table.comm_abort){}, decltype(&ncclCommAbort){}));
  static_assert(
      same_forms(decltype(table.comm_get_async_error){}, decltype(&ncclCommGetAsyncError){}));
  static_assert(same_forms(decltype(table.all_reduce){}, decltype(&ncclAllReduce){}));
  static_assert(same_forms(decltype(table.red_op_create_pre_mul_sum){},
                           decltype(&ncclRedOpCreatePreMulSum){}));
  static_assert(same_forms(decltype(table.red_op_destroy){}, decltype(&ncclRedOpDestroy){}));
  static_assert(same_forms(decltype(table.get_error_string){}, decltype(&ncclGetErrorString){}));
  static_assert(same_forms(decltype(table.get_last_error){}, decltype(&ncclGetLastError){}));
}
#endif

TEST(NcclLibrary, SaysWhichFilesWereTried) {
  const char* const before = std::getenv("CONVSCOPE_NCCL_LIBRARY");
  const std::string kept = before == nullptr ? "" : before;
  setenv("CONVSCOPE_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  std::string why;
  EXPECT_EQ(open_nccl_library(&why), nullptr);
  EXPECT_NE(why.find("/nowhere/libnccl.so.2"), std::string::npos) << why;
  setenv("CONVSCOPE_NCCL_LIBRARY", "libm.so.6", 1);  // another library
  EXPECT_EQ(open_nccl_library(&why), nullptr);
  EXPECT_NE(why.find("libm.so.6: it has no ncclGetVersion"), std::string::npos) << why;
  before == nullptr ? unsetenv("CONVSCOPE_NCCL_LIBRARY")
                    : setenv("CONVSCOPE_NCCL_LIBRARY", kept.c_str(), 1);
}

}  // namespace
}  // namespace convscope
