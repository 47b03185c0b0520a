// SPDX-License-Identifier: Apache-2.0
// environment_variable.h: sets an environment variable until the end of a scope.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace convscope::testing {

class EnvironmentVariable {
 public:
  // Sets a variable; `value` null: unsets it.
  EnvironmentVariable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    assign(value);
  }
  ~EnvironmentVariable() { assign(before_ ? before_->c_str() : nullptr); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

  void assign(const char* value) const {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

}  // namespace convscope::testing
