// SPDX-License-Identifier: Apache-2.0
// elf_entries.cpp: checks that every address which the dynamic loader jumps to is in the file.
#include "layers/dispatch/plugin/elf_entries.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "framework/check.h"

namespace convscope {
namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
constexpr std::uint32_t kRelative = R_X86_64_RELATIVE, kIfunc = R_X86_64_IRELATIVE;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
constexpr std::uint32_t kRelative = R_AARCH64_RELATIVE, kIfunc = R_AARCH64_IRELATIVE;
#else
constexpr int kMachine = EM_NONE;  // not checked
constexpr std::uint32_t kRelative = 0, kIfunc = 0;
#endif

using Address = std::uint64_t;

class Elf {
 public:
  explicit Elf(Bytes file) : file_(file) {}

  std::string damage() {
    if (kMachine == EM_NONE) return "";
    Elf64_Ehdr head;
    if (!read(0, head)) return "is damaged: its header is cut";
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB ||
        head.e_machine != kMachine) {
      return "is for another machine";
    }
    if (head.e_type != ET_DYN) return "is not a shared library";
    if (head.e_phentsize != sizeof(Elf64_Phdr)) return "is damaged: its segments have another size";
    for (int i = 0; i < head.e_phnum; ++i) {
      Elf64_Phdr segment;
      const Address at = head.e_phoff + static_cast<Address>(i) * sizeof segment;
      if (!read(at, segment)) return "is damaged: its list of segments is cut";
      if (segment.p_type == PT_LOAD) loaded_.push_back(segment);
      if (segment.p_type == PT_DYNAMIC) dynamic_ = segment;
    }
    for (const Elf64_Phdr& segment : loaded_) {
      const bool inside = segment.p_filesz <= segment.p_memsz && segment.p_offset <= file_.size() &&
                          segment.p_filesz <= file_.size() - segment.p_offset;
      if (!inside)
        return "is damaged: a segment ends after the end of the file, which is cut or was changed";
    }
    return damage_of_dynamic();
  }

 private:
  template <class T>
  bool read(Address offset, T& out) const {
    if (offset > file_.size() || sizeof out > file_.size() - offset) return false;
    std::memcpy(&out, file_.data() + offset, sizeof out);
    return true;
  }

  // Returns whether `bytes` bytes at an address are loaded with these rights, and come from the
  // file.
  bool is_loaded(Address address, Address bytes, std::uint32_t rights, bool in_file) const {
    for (const Elf64_Phdr& segment : loaded_) {
      const Address size = in_file ? segment.p_filesz : segment.p_memsz;
      if (address < segment.p_vaddr || address - segment.p_vaddr > size) continue;
      if (bytes > size - (address - segment.p_vaddr)) continue;
      if ((segment.p_flags & rights) == rights) return true;
    }
    return false;
  }
  bool is_code(Address address) const { return is_loaded(address, 1, PF_X, true); }
  // Reads a T at an address for which is_loaded() is true.
  template <class T>
  bool read_loaded(Address address, T& out) const {
    for (const Elf64_Phdr& segment : loaded_) {
      if (address < segment.p_vaddr || address - segment.p_vaddr >= segment.p_filesz) continue;
      return read(segment.p_offset + (address - segment.p_vaddr), out);
    }
    return false;
  }

  std::string damage_of_dynamic() {
    for (Address at = 0; at + sizeof(Elf64_Dyn) <= dynamic_.p_filesz; at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn entry;
      if (!read(dynamic_.p_offset + at, entry)) return "is damaged: its dynamic table is cut";
      if (entry.d_tag == DT_NULL) break;
      entries_[entry.d_tag] = entry.d_un.d_val;
    }
    if (entries_.empty()) return "is damaged: it has no dynamic table";
    const struct {
      Elf64_Sxword table, bytes;
      const char* name;
      Address least;
    } tables[] = {{DT_SYMTAB, 0, "DT_SYMTAB", sizeof(Elf64_Sym)},
                  {DT_STRTAB, DT_STRSZ, "DT_STRTAB", 1},
                  {DT_RELA, DT_RELASZ, "DT_RELA", sizeof(Elf64_Rela)},
                  {DT_JMPREL, DT_PLTRELSZ, "DT_JMPREL", sizeof(Elf64_Rela)},
                  {DT_RELR, DT_RELRSZ, "DT_RELR", 8},
                  {DT_HASH, 0, "DT_HASH", 8},
                  {DT_GNU_HASH, 0, "DT_GNU_HASH", 16},
                  {DT_VERSYM, 0, "DT_VERSYM", 2},
                  {DT_VERNEED, 0, "DT_VERNEED", 4},
                  {DT_INIT_ARRAY, DT_INIT_ARRAYSZ, "DT_INIT_ARRAY", 8},
                  {DT_FINI_ARRAY, DT_FINI_ARRAYSZ, "DT_FINI_ARRAY", 8}};
    for (const auto& one : tables) {
      if (!entries_.contains(one.table)) continue;
      const Address bytes = one.bytes == 0 ? one.least : value(one.bytes);
      if (bytes > 0 && !is_loaded(value(one.table), bytes, PF_R, true)) {
        return cat("is damaged: its ", one.name, " is outside of what is loaded");
      }
    }
    for (const auto& [tag, name] : {std::pair(DT_INIT, "DT_INIT"), {DT_FINI, "DT_FINI"}}) {
      if (entries_.contains(tag) && value(tag) != 0 && !is_code(value(tag))) {
        return cat("is damaged: its ", name, " is not in its code");
      }
    }
    for (const auto& [table, bytes] : {std::pair(DT_RELA, DT_RELASZ), {DT_JMPREL, DT_PLTRELSZ}}) {
      const std::string wrong = damage_of_relocations(value(table), value(bytes));
      if (!wrong.empty()) return wrong;
    }
    const std::string first = damage_of_array(DT_INIT_ARRAY, DT_INIT_ARRAYSZ, "DT_INIT_ARRAY");
    return first.empty() ? damage_of_array(DT_FINI_ARRAY, DT_FINI_ARRAYSZ, "DT_FINI_ARRAY") : first;
  }

  Address value(Elf64_Sxword tag) const {
    const auto found = entries_.find(tag);
    return found == entries_.end() ? 0 : found->second;
  }

  std::string damage_of_relocations(Address table, Address bytes) {
    if (bytes % sizeof(Elf64_Rela) != 0) return "is damaged: its relocations are cut";
    for (Address at = 0; at < bytes; at += sizeof(Elf64_Rela)) {
      Elf64_Rela one;
      if (!read_loaded(table + at, one)) return "is damaged: its relocations are cut";
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(one.r_info));
      const auto addend = static_cast<Address>(one.r_addend);
      if (type == 0) continue;
      if (!is_loaded(one.r_offset, 8, PF_R, false)) {
        return "is damaged: a relocation would write outside of what is loaded";
      }
      if (type == kIfunc && !is_code(addend)) {
        return "is damaged: an IFUNC is not in its code";
      }
      if (type == kRelative) {
        relative_[one.r_offset] = addend;
      } else {
        by_symbol_[one.r_offset] = true;  // the loader resolves it by name
      }
    }
    return "";
  }

  std::string damage_of_array(Elf64_Sxword table, Elf64_Sxword bytes, const char* name) const {
    if (value(bytes) % sizeof(Address) != 0) return cat("is damaged: its ", name, " is cut");
    const Address begin = value(table);
    for (Address at = begin; at < begin + value(bytes); at += sizeof(Address)) {
      if (by_symbol_.contains(at)) continue;
      Address function = 0;  // as stored there, where DT_RELR adds the base
      const auto relative = relative_.find(at);
      if (relative != relative_.end()) {
        function = relative->second;
      } else if (!read_loaded(at, function)) {
        return cat("is damaged: its ", name, " is cut");
      }
      if (!is_code(function)) return cat("is damaged: its ", name, " points outside of its code");
    }
    return "";
  }

  const Bytes file_;
  std::vector<Elf64_Phdr> loaded_;
  Elf64_Phdr dynamic_{};
  std::map<Elf64_Sxword, Address> entries_;
  std::map<Address, Address> relative_;
  std::map<Address, bool> by_symbol_;
};

}  // namespace

std::string damage_of_elf(Bytes file) { return Elf(file).damage(); }

}  // namespace convscope
