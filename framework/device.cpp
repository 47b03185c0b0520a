// SPDX-License-Identifier: Apache-2.0
// device.cpp: contains the table of device backends, and opens libconvscope_cuda.
#include "framework/device.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "framework/check.h"

namespace convscope {
namespace {

std::array<DeviceBackend, kDeviceTypeCount>& backends() {
  static std::array<DeviceBackend, kDeviceTypeCount> table{};
  return table;
}

// Returns the path in CONVSCOPE_CUDA_LIBRARY if it is set. Otherwise returns the path of
// libconvscope_cuda.so in the folder of libconvscope.
std::string cuda_library_path() {
  if (const char* given = std::getenv("CONVSCOPE_CUDA_LIBRARY")) return given;
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&cuda_library_path), &here) != 0 &&
      here.dli_fname != nullptr) {
    return (std::filesystem::path(here.dli_fname).parent_path() / "libconvscope_cuda.so").string();
  }
  return "libconvscope_cuda.so";
}

DeviceStatus open_cuda() {
  // Skips the driver check for a library that the user names, because the library may be the
  // emulation, which needs no driver.
  if (std::getenv("CONVSCOPE_CUDA_LIBRARY") == nullptr &&
      dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    return {false, "this machine has no NVIDIA driver (libcuda.so.1 was not found)"};
  }
  const std::string path = cuda_library_path();
  if (!std::filesystem::exists(path)) {
    return {false, cat("this build has no CUDA library (looked for ", path,
                       "); build it on a machine with nvcc")};
  }
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE) == nullptr) {
    return {false, cat("the CUDA library could not be opened: ", dlerror())};
  }
  const DeviceBackend& backend = backends()[static_cast<std::size_t>(DeviceType::cuda)];
  if (backend.name == nullptr) {
    return {false, cat(path, " was opened but registered no CUDA backend")};
  }
  if (backend.device_count == nullptr || backend.system_allocate == nullptr ||
      backend.system_free == nullptr || backend.copy_to_host == nullptr ||
      backend.copy_from_host == nullptr || backend.synchronize == nullptr ||
      backend.facts == nullptr) {
    return {false, cat(path,
                       " registered a CUDA backend that is not complete; it may be of "
                       "another version")};
  }
  if (backend.device_count() <= 0) return {false, "the driver reports no CUDA device"};
  return {true, ""};
}

}  // namespace

Device Device::parse(std::string_view text) {
  if (text == "cpu") return {DeviceType::cpu, 0};
  if (text == "cuda") return {DeviceType::cuda, 0};
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix) && text.size() == kPrefix.size() + 1 && text.back() >= '0' &&
      text.back() <= '9') {
    return {DeviceType::cuda, static_cast<std::uint8_t>(text.back() - '0')};
  }
  fail("device", cat("expected cpu, cuda or cuda:<index>, got '", text, "'"));
}

std::string Device::str() const {
  return type == DeviceType::cpu ? "cpu" : cat("cuda:", static_cast<int>(index));
}

void register_device_backend(DeviceType type, const DeviceBackend& backend) {
  backends()[static_cast<std::size_t>(type)] = backend;
}

const DeviceStatus& status_of(DeviceType type) {
  static const DeviceStatus cpu{true, ""};
  if (type == DeviceType::cpu) return cpu;
  static std::once_flag once;
  static DeviceStatus cuda;
  std::call_once(once, [] { cuda = open_cuda(); });
  return cuda;
}

const DeviceBackend& backend_of(Device device) {
  const DeviceStatus& status = status_of(device.type);
  if (!status.available) {
    fail(ErrorKind::kUnavailable, "device",
         cat("expected device ", device.str(), " to be available, but ", status.reason,
             "; use device cpu"));
  }
  const DeviceBackend& backend = backends()[static_cast<std::size_t>(device.type)];
  if (device.index > 0 && device.index >= backend.device_count()) {
    fail(ErrorKind::kUnavailable, "device",
         cat("expected a device index below ", backend.device_count(), ", got ", device.str()));
  }
  return backend;
}

}  // namespace convscope
