// SPDX-License-Identifier: Apache-2.0
// elf_entries.h: does every place that the dynamic loader jumps to, or reads a table from, lie in
// the file?
//
// The loader believes the table of a shared library: it calls what DT_INIT, DT_INIT_ARRAY, DT_FINI
// and DT_FINI_ARRAY name, resolves IFUNC relocations by calling them, and writes wherever a
// relocation says. A damaged file would crash the program, the finalisers only when all its work is
// done. So the places are looked at while the file is bytes.
#pragma once

#include <string>

#include "framework/export.h"
#include "framework/io/bytes.h"

namespace convscope {

// "" or what is wrong, as the end of a sentence: "is damaged: its DT_FINI_ARRAY ...". Of files of
// another kind of ELF than this program's: "is of another machine".
CONVSCOPE_API std::string damage_of_elf(Bytes file);

}  // namespace convscope
