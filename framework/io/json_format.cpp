// SPDX-License-Identifier: Apache-2.0
// json_format.cpp: the field "format" of JSON files.
#include "framework/io/json_format.h"

#include <algorithm>

#include "framework/check.h"
#include "framework/registry.h"

namespace convscope {
namespace {

std::string without_number(const std::string& format) {
  return format.substr(0, format.rfind(' '));
}

}  // namespace

bool is_other_version(const std::string& got, const std::string& known) {
  return got != known && without_number(got) == without_number(known);
}

std::string format_problem(const std::string& got, const std::vector<std::string>& known) {
  if (std::ranges::count(known, got) > 0) return "";
  for (const std::string& one : known) {
    if (!is_other_version(got, one)) continue;
    return cat("the format '", got, "', but this program reads '", one,
               "'; read it with the version of convscope that wrote it, or write it again with "
               "this one");
  }
  return cat("the format '", got, "', but this program reads '", join(known, "', '"), "'");
}

}  // namespace convscope
