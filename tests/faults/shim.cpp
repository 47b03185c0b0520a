// SPDX-License-Identifier: Apache-2.0
// shim.cpp: a library that is loaded before the C library (LD_PRELOAD) and delays one system call,
// or lets it fail.
//
// The variable FAULT_SHIM has the form "CALL NAME NUMBER WHAT". CALL is `close`, `rename` or
// `fsync`. The shim counts the calls for files whose name ends with NAME (rename: the new name;
// fsync: any file). It affects call NUMBER, or every call if NUMBER is 0. WHAT is "fail", as on a
// broken disk, or the milliseconds to wait before the call.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Fault {
  char call[16] = "", name[128] = "", what[16] = "";
  int number = -1;
  Fault() {
    const char* const text = std::getenv("FAULT_SHIM");
    if (text == nullptr) return;
    if (std::sscanf(text, "%15s %127s %d %15s", call, name, &number, what) != 4) number = -1;
  }
};

// Returns true when the call must fail.
bool meets(const char* call, const char* path) {
  static const Fault fault;
  static std::atomic<int> seen{0};
  if (fault.number < 0 || std::strcmp(fault.call, call) != 0) return false;
  const std::size_t end = std::strlen(path), length = std::strlen(fault.name);
  if (std::strcmp(call, "fsync") != 0 &&
      (end < length || std::strcmp(path + end - length, fault.name) != 0)) {
    return false;
  }
  const int number = ++seen;
  if (fault.number > 0 && number != fault.number) return false;
  if (std::strcmp(fault.what, "fail") == 0) return true;
  usleep(1000 * static_cast<useconds_t>(std::atoi(fault.what)));
  return false;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int close(int file) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = '\0';
  meets("close", path);  // the file is closed although close() reports an error
  return next<int (*)(int)>("close")(file);
}

__attribute__((visibility("default"))) int rename(const char* from, const char* to) noexcept {
  if (meets("rename", to)) {
    errno = EIO;
    return -1;
  }
  return next<int (*)(const char*, const char*)>("rename")(from, to);
}

__attribute__((visibility("default"))) int fsync(int file) {
  if (meets("fsync", "")) {
    errno = EIO;
    return -1;
  }
  return next<int (*)(int)>("fsync")(file);
}
}
