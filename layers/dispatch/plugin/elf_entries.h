// SPDX-License-Identifier: Apache-2.0
// elf_entries.h: checks that every address which the dynamic loader jumps to, or reads a table
// from, is in the file.
//
// The loader trusts the tables of a shared library: it calls DT_INIT, DT_INIT_ARRAY, DT_FINI and
// DT_FINI_ARRAY, calls the resolvers of IFUNC relocations, and writes wherever a relocation says. A
// damaged file would crash the program; bad finalisers crash it after all work is done. So the
// addresses are checked before the file is loaded.
#pragma once

#include <string>

#include "framework/export.h"
#include "framework/io/bytes.h"

namespace convscope {

// Returns "", or the end of a sentence that says what is wrong: "is damaged: its DT_FINI_ARRAY
// ...". If the ELF file is for another machine than this program: "is of another machine".
CONVSCOPE_API std::string damage_of_elf(Bytes file);

}  // namespace convscope
