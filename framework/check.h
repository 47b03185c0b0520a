// SPDX-License-Identifier: Apache-2.0
// check.h: the project's exception type, and the macro that throws it. The message is one sentence:
// it names the operation, what was expected and why, and the value that came instead.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "framework/export.h"

namespace convscope {

// The kind of an error. The command line maps each kind to an exit code.
enum class ErrorKind {
  kInvalid,      // a wrong argument, shape or call order
  kConfig,       // an experiment config that cannot be used
  kData,         // a data set that is missing or corrupt
  kUnavailable,  // a device or an algorithm that is not available here
  kIo,           // a file or folder that cannot be read or written
  kRun,          // a run that failed: NaN, a missed `expect:`
};

// The only exception type that the project throws. what() is "[operation] sentence".
class CONVSCOPE_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string_view operation, std::string_view sentence);
  ~Error() override;
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// Returns the exit code for a kind of error: 2 usage, 3 config, 4 data, 5 unavailable, 6 I/O, 1 for
// a failed run.
CONVSCOPE_API int exit_code(ErrorKind kind) noexcept;

// Throws Error.
[[noreturn]] CONVSCOPE_API void fail(ErrorKind kind, std::string_view operation,
                                     std::string_view sentence);
[[noreturn]] CONVSCOPE_API void fail(std::string_view operation, std::string_view sentence);

namespace detail {
inline void append(std::string& out, std::string_view text) { out.append(text); }
inline void append(std::string& out, const char* text) { out.append(text); }
inline void append(std::string& out, const std::string& text) { out.append(text); }
inline void append(std::string& out, char c) { out.push_back(c); }
inline void append(std::string& out, bool value) { out.append(value ? "true" : "false"); }
CONVSCOPE_API void append(std::string& out, double value);
template <class T>
requires std::is_integral_v<T>
void append(std::string& out, T value) { out.append(std::to_string(value)); }
template <class T>
requires requires(const T& t) { t.str(); }
void append(std::string& out, const T& value) { out.append(value.str()); }
}  // namespace detail

// Joins its arguments to one string. Takes text, numbers, and objects with a str() member.
template <class... Args>
std::string cat(const Args&... args) {
  std::string out;
  (detail::append(out, args), ...);
  return out;
}

}  // namespace convscope

// CONVSCOPE_CHECK(x.rank() == 4, "conv2d", "expected x of rank 4 [N,C,H,W], got ", x.shape());
// The sentence is built only when the condition is false.
#define CONVSCOPE_CHECK(condition, operation, ...)                   \
  do {                                                               \
    if (!(condition)) {                                              \
      ::convscope::fail((operation), ::convscope::cat(__VA_ARGS__)); \
    }                                                                \
  } while (false)
