// SPDX-License-Identifier: Apache-2.0
// registry.h: a generic table that maps names to entries: algorithms, layers, optimisers,
// schedules, data sets.
//
// An entry registers itself in the file that defines it, so a new entry changes no other file.
// Entries are sorted by name, never in link order. A function in a .cpp file returns the table:
//   Registry<LayerType>& layer_types() { static Registry<LayerType> table("layer"); return table; }
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/check.h"
#include "framework/io/former_names.h"

namespace convscope {

// Returns the known word nearest to `word` by edit distance, or "" when none is near.
CONVSCOPE_API std::string nearest_word(std::string_view word,
                                       const std::vector<std::string>& known);
// Returns "a, b, c".
CONVSCOPE_API std::string join(const std::vector<std::string>& words,
                               std::string_view separator = ", ");

template <class Entry>
class Registry {
 public:
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  // Adds an entry. `file` is the source file that adds it (__FILE__). Errors name this file. A test
  // checks that each algorithm file in layers/conv2d adds one entry.
  bool add(const std::string& name, Entry entry, std::string file) {
    CONVSCOPE_CHECK(!entries_.contains(name), "registry", "expected one ", kind_, " named '", name,
                    "', but ", files_[name], " adds it and ", file, " adds it again");
    entries_.emplace(name, std::move(entry));
    files_.emplace(name, std::move(file));
    return true;
  }

  const Entry* find(std::string_view name) const {
    auto it = entries_.find(std::string(name));
    if (it == entries_.end()) {
      it = entries_.find(std::string(todays_name(name)));
      if (it != entries_.end()) warn_of_former_name(name, it->first);
    }
    return it == entries_.end() ? nullptr : &it->second;
  }

  // Returns the entry. Throws an error that lists the choices when there is no such entry.
  const Entry& get(std::string_view name, ErrorKind kind = ErrorKind::kConfig) const {
    if (const Entry* entry = find(name)) return *entry;
    const std::string near = nearest_word(name, names());
    fail(kind, kind_,
         cat("unknown ", kind_, " '", name, "'",
             near.empty() ? "" : cat("; did you mean '", near, "'?"), " (known: ", join(names()),
             ")"));
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, entry] : entries_) out.push_back(name);
    return out;
  }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::string& file_of(const std::string& name) const { return files_.at(name); }

 private:
  std::string kind_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> files_;
};

}  // namespace convscope
