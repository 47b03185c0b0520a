// SPDX-License-Identifier: Apache-2.0
// nccl.cpp: replaces NCCL. Computes sums over the emulated GPUs of several processes on one host.
// So training steps of several processes, also recorded ones, are tested on a machine without a
// GPU:
//
//   export CONVSCOPE_CUDA_LIBRARY=build/release/lib/libconvscope_cuda_emulated.so
//   export CONVSCOPE_NCCL_LIBRARY=$CONVSCOPE_CUDA_LIBRARY
//   mpirun -n 2 convscope run ... device=cuda
//
// Method    The processes share a memory segment with one slot (an array of kPiece elements) per
//           process. A sum is computed in ranges of kPiece elements. For each range, each process
//           writes its terms to its slot, and all processes synchronise. Then each process adds all
//           slots in rank order, and all synchronise again. During a stream capture, the sum
//           becomes part of the capture.
// A process that waits for a lost process waits forever, as with NCCL.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "framework/cuda/emulation/threads.h"

namespace {

constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4;
constexpr int kFloat32 = 7;
constexpr int kFirstOwnOp = 5;              // after NCCL's operations
constexpr std::size_t kPiece = 64 << 10;    // elements
constexpr std::size_t kHeaderBytes = 4096;  // before the slots

// The header of the shared memory segment. A new segment contains zeros.
struct Meeting {
  std::atomic<int> arrived;
  std::atomic<int> round;
};
static_assert(std::atomic<int>::is_always_lock_free);

struct Comm {
  int ranks = 0, rank = 0;
  std::size_t bytes = 0;
  void* memory = nullptr;
  std::vector<float> weights;  // of custom operations

  Meeting& meeting() const { return *static_cast<Meeting*>(memory); }
  float* slot(int of) const {
    return reinterpret_cast<float*>(static_cast<char*>(memory) + kHeaderBytes) +
           static_cast<std::size_t>(of) * kPiece;
  }
  void meet() const {
    Meeting& m = meeting();
    const int round = m.round.load();
    if (m.arrived.fetch_add(1) + 1 == ranks) {
      m.arrived.store(0);
      m.round.fetch_add(1);
      return;
    }
    for (int looks = 0; m.round.load() == round; ++looks) {
      if (looks < 100) {
        sched_yield();
      } else {
        usleep(50);
      }
    }
  }
  void sum(const float* from, float* to, std::size_t count, float weight) const {
    for (std::size_t begin = 0; begin < count; begin += kPiece) {
      const std::size_t n = std::min(kPiece, count - begin);
      float* const own = slot(rank);
      for (std::size_t i = 0; i < n; ++i) own[i] = weight * from[begin + i];
      meet();
      for (std::size_t i = 0; i < n; ++i) {
        float total = slot(0)[i];
        for (int r = 1; r < ranks; ++r) total += slot(r)[i];
        to[begin + i] = total;
      }
      meet();
    }
  }
};

struct UniqueId {
  char bytes[128];
};

std::string last_error;
int failed(const std::string& what) {
  last_error = what + ": " + std::strerror(errno);
  return kSystemError;
}

}  // namespace

#define CONVSCOPE_EMULATED_NCCL extern "C" __attribute__((visibility("default")))

CONVSCOPE_EMULATED_NCCL const int convscope_emulates_nccl = 1;

CONVSCOPE_EMULATED_NCCL int ncclGetVersion(int* version) {
  *version = 2'28'09;
  return kSuccess;
}
CONVSCOPE_EMULATED_NCCL int ncclGetUniqueId(UniqueId* id) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::snprintf(id->bytes, sizeof(id->bytes), "/convscope-nccl-%d-%lld-%ld",
                static_cast<int>(getpid()), static_cast<long long>(now.tv_sec), now.tv_nsec);
  return kSuccess;
}
CONVSCOPE_EMULATED_NCCL int ncclCommInitRank(void** out, int ranks, UniqueId id, int rank) {
  auto* const comm = new Comm;
  comm->ranks = ranks;
  comm->rank = rank;
  comm->bytes = kHeaderBytes + static_cast<std::size_t>(ranks) * kPiece * sizeof(float);
  id.bytes[sizeof(id.bytes) - 1] = '\0';
  const int file = shm_open(id.bytes, O_CREAT | O_RDWR, 0600);
  if (file < 0) return failed("shm_open");
  const bool sized = ftruncate(file, static_cast<off_t>(comm->bytes)) == 0;
  comm->memory =
      sized ? mmap(nullptr, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (comm->memory == MAP_FAILED) return failed("mmap");
  comm->meet();
  if (rank == 0) shm_unlink(id.bytes);  // all processes have opened it; the last munmap frees it
  *out = comm;
  return kSuccess;
}
CONVSCOPE_EMULATED_NCCL int ncclCommDestroy(void* handle) {
  auto* const comm = static_cast<Comm*>(handle);
  munmap(comm->memory, comm->bytes);
  delete comm;
  return kSuccess;
}
CONVSCOPE_EMULATED_NCCL int ncclCommAbort(void* handle) { return ncclCommDestroy(handle); }
CONVSCOPE_EMULATED_NCCL int ncclCommGetAsyncError(void*, int* error) {
  *error = kSuccess;
  return kSuccess;
}
CONVSCOPE_EMULATED_NCCL int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int,
                                                     void* handle) {
  if (type != kFloat32) return kInvalidArgument;
  auto* const comm = static_cast<Comm*>(handle);
  *op = kFirstOwnOp + static_cast<int>(comm->weights.size());
  comm->weights.push_back(*static_cast<float*>(scalar));
  return kSuccess;
}
CONVSCOPE_EMULATED_NCCL int ncclRedOpDestroy(int, void*) { return kSuccess; }
CONVSCOPE_EMULATED_NCCL int ncclAllReduce(const void* from, void* to, std::size_t count, int type,
                                          int op, void* handle, void*) {
  auto* const comm = static_cast<Comm*>(handle);
  const auto own = static_cast<std::size_t>(op - kFirstOwnOp);
  if (type != kFloat32 || (op != 0 && own >= comm->weights.size())) return kInvalidArgument;
  const float weight = op == 0 ? 1.0f : comm->weights[own];
  const auto work = [=] {
    emulation::overlap::settle();
    comm->sum(static_cast<const float*>(from), static_cast<float*>(to), count, weight);
  };
  if (emulation::is_capturing()) {
    emulation::capture(work);
  } else {
    work();
  }
  return kSuccess;
}
CONVSCOPE_EMULATED_NCCL const char* ncclGetErrorString(int error) {
  return error == kSystemError       ? "unhandled system error"
         : error == kInvalidArgument ? "invalid argument"
                                     : "no error";
}
CONVSCOPE_EMULATED_NCCL const char* ncclGetLastError(void*) { return last_error.c_str(); }
