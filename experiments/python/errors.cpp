// SPDX-License-Identifier: Apache-2.0
// errors.cpp: converts errors of the library to Python exceptions with the same message.
#include "experiments/python/errors.h"

#include <filesystem>
#include <string_view>

#include "framework/check.h"

namespace convscope::python {
namespace {

namespace nb = nanobind;

class TypeMistake : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid:
      return "InvalidError";
    case ErrorKind::kConfig:
      return "ConfigError";
    case ErrorKind::kData:
      return "DataError";
    case ErrorKind::kUnavailable:
      return "UnavailableError";
    case ErrorKind::kIo:
      return "FileError";
    case ErrorKind::kRun:
      return "RunError";
  }
  return "Error";
}

void raise(const char* name, const char* sentence) {
  const nb::object type = nb::module_::import_("convscope._errors").attr(name);
  PyErr_SetString(type.ptr(), sentence);
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const bool memory = std::string_view(error.what()).starts_with("[memory] out of memory");
    raise(memory ? "OutOfMemoryError" : class_of(error.kind()), error.what());
  } catch (const TypeMistake& error) {
    raise("ArgumentError", error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    raise("FileError", error.what());
  }
}

}  // namespace

void fail_type(const std::string& sentence) { throw TypeMistake(sentence); }

void translate_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace convscope::python
