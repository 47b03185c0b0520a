// SPDX-License-Identifier: Apache-2.0
// json_fields.h: reads fields of JSON that may be incomplete, or from another program.
#pragma once

#include <string>

namespace convscope {

// Returns a member of an object; null when it is missing, or when `object` is of another type.
template <class Json>
const Json& child(const Json& object, const std::string& key) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto at = object.find(key);
  return at == object.end() ? none : *at;
}

// Returns "" for anything but a text.
template <class Json>
std::string text_at(const Json& object, const std::string& key) {
  const Json& value = child(object, key);
  return value.is_string() ? value.template get<std::string>() : "";
}

// Returns a number of threads or cores; 0 for anything else.
template <class Json>
int count_at(const Json& object, const std::string& key) {
  const Json& value = child(object, key);
  const double number = value.is_number() ? value.template get<double>() : 0;
  return number >= 1 && number <= 1e6 ? static_cast<int>(number) : 0;
}

}  // namespace convscope
