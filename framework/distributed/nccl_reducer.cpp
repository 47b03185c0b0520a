// SPDX-License-Identifier: Apache-2.0
// nccl_reducer.cpp: sums over the GPUs of a group with NCCL.
#include "framework/distributed/nccl_reducer.h"

#include <cstring>
#include <exception>
#include <vector>

namespace convscope {
namespace {

constexpr const char* kName = "ranks";

const SideQueues& side_queues_of(Device device) {
  (void)backend_of(device);  // opens the CUDA library, which registers them
  return side_queues_kernel.get(device)();
}

// Returns "" or the reason why this process cannot use NCCL.
std::string obstacle(const NcclLibrary* nccl, const SideQueues& queues,
                     const std::string& why_not_opened) {
  if (nccl == nullptr) return why_not_opened;
  if (queues.is_emulated && !nccl->is_emulated) return "NCCL needs a GPU, but this one is emulated";
  if (!queues.is_emulated && nccl->is_emulated) {
    return cat(nccl->file, " emulates NCCL, but the GPU is not emulated");
  }
  return "";
}

}  // namespace

std::unique_ptr<NcclReducer> NcclReducer::make(ProcessGroup& group, Device device,
                                               std::string* why_not) {
  std::string not_opened;
  const NcclLibrary* const nccl = open_nccl_library(&not_opened);
  const std::vector<std::string> obstacles =
      group.gather(obstacle(nccl, side_queues_of(device), not_opened));
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& why = obstacles[static_cast<std::size_t>(rank)];
    if (why.empty()) continue;
    if (why_not != nullptr) {
      *why_not = rank == group.rank() ? why : cat("of ", group.name_of(rank), ": ", why);
    }
    return nullptr;
  }
  std::unique_ptr<NcclReducer> out(new NcclReducer(*nccl, device));
  NcclLibrary::UniqueId id{};
  if (group.rank() == 0) out->check(nccl->get_unique_id(&id), "ncclGetUniqueId");
  const std::string bytes = group.broadcast(std::string(id.bytes, sizeof(id.bytes)));
  CONVSCOPE_CHECK(bytes.size() == sizeof(id.bytes), kName, "expected ", sizeof(id.bytes),
                  " bytes of an NCCL id, got ", bytes.size());
  std::memcpy(id.bytes, bytes.data(), sizeof(id.bytes));
  out->check(nccl->comm_init_rank(&out->comm_, group.size(), id, group.rank()), "ncclCommInitRank");
  return out;
}

NcclReducer::NcclReducer(const NcclLibrary& nccl, Device device)
    : nccl_(nccl),
      device_(device),
      queues_(side_queues_of(device)),
      queue_(queues_.make(device.index)) {}

NcclReducer::~NcclReducer() {
  // The result is ignored: after an error that ends the run, the device may be in any state.
  if (comm_ != nullptr) {
    if (std::uncaught_exceptions() > 0) {  // the other processes may never arrive
      (void)nccl_.comm_abort(comm_);
    } else {
      for (const auto& [weight, op] : ops_) (void)nccl_.red_op_destroy(op, comm_);
      (void)nccl_.comm_destroy(comm_);
    }
  }
  if (queue_ != nullptr) queues_.free(device_.index, queue_);
}

void NcclReducer::check(int status, const char* what) const {
  if (status == NcclLibrary::kSuccess) return;
  const char* const last = nccl_.get_last_error(comm_);
  const std::string more = last != nullptr && last[0] != '\0' ? cat(" (", last, ")") : "";
  fail(ErrorKind::kRun, kName,
       cat("expected ", what, " of ", text(), " to succeed, got: ", nccl_.get_error_string(status),
           more, "; set NCCL_DEBUG=INFO for details"));
}

int NcclReducer::op_of(float weight) {
  if (weight == 1.0f) return NcclLibrary::kSum;
  const auto [at, is_new] = ops_.try_emplace(weight, 0);
  if (!is_new) return at->second;
  float scalar = weight;
  const int status = nccl_.red_op_create_pre_mul_sum(&at->second, &scalar, NcclLibrary::kFloat32,
                                                     NcclLibrary::kScalarHostImmediate, comm_);
  if (status != NcclLibrary::kSuccess) ops_.erase(at);
  check(status, "ncclRedOpCreatePreMulSum");
  return at->second;
}

void NcclReducer::sum(const Tensor& data, float weight) {
  CONVSCOPE_CHECK(data.dtype() == DType::f32 && data.device() == device_, kName,
                  "expected f32 numbers on ", device_, ", got ", data.str());
  if (data.numel() == 0) return;
  // Reports an asynchronous error of an earlier sum, such as a broken network.
  int earlier = NcclLibrary::kSuccess;
  check(nccl_.comm_get_async_error(comm_, &earlier), "ncclCommGetAsyncError");
  check(earlier, "an earlier sum");
  const int op = op_of(weight);
  queues_.fork(device_.index, queue_);
  check(nccl_.all_reduce(data.raw_data(), data.raw_data(), static_cast<std::size_t>(data.numel()),
                         NcclLibrary::kFloat32, op, comm_, queue_),
        "ncclAllReduce");
}

void NcclReducer::join() { queues_.join(device_.index, queue_); }

std::string NcclReducer::text() const { return cat("NCCL ", nccl_.version); }

}  // namespace convscope
