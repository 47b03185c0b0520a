# Compiles several source files as one unit, so that headers are parsed once and shared template instances
# are compiled once. CONVSCOPE_UNITY is for builds without edits, because a changed file recompiles its
# whole unit.
option(CONVSCOPE_UNITY "Compile files that are no kernels in units of several" OFF)
set(CONVSCOPE_ALONE "" CACHE STRING
  "Files to compile alone all the same, a regular expression: the folder that one works in")

# Converts "using Ints = std::vector<int>" to "using alias_std__vector_int_::Ints".
function(convscope_name_aliases lines out)
  string(REGEX MATCHALL "using [A-Za-z0-9_]+ = std::[a-z0-9_:<>]+" aliases "${lines}")
  list(REMOVE_DUPLICATES aliases)
  foreach(alias IN LISTS aliases)
    string(REGEX REPLACE "using ([A-Za-z0-9_]+) = .*" "\\1" name "${alias}")
    string(REGEX REPLACE ".* = " "" type "${alias}")
    string(MAKE_C_IDENTIFIER "${type}" type)
    string(REPLACE "${alias}" "using alias_${type}::${name}" lines "${lines}")
  endforeach()
  set(${out} "${lines}" PARENT_SCOPE)
endfunction()

# Collects the names that a file declares at the outermost level. Declarations inside namespaces begin in column 1 too,
# so the function takes every word of such a line that could be a name. A registration macro counts as a name, because
# it declares the same name in each file; exempted macros make a new name from their arguments. `used` gets names that
# two files may share, because a name means the same in both files. Such a name is imported with its full name (using
# testing::Each), or is an alias of a standard type (using Ints = std::vector<int>). convscope_name_aliases() gives each
# alias a full name, too.
function(convscope_declared_names file out used)
  file(STRINGS ${file} lines REGEX "^[A-Za-z_]")
  list(FILTER lines EXCLUDE REGEX
    "^(namespace|CONVSCOPE_(KERNEL|REGISTER_SCHEDULE)|TEST|TYPED_TEST|INSTANTIATE_)")
  convscope_name_aliases("${lines}" lines)
  string(REGEX MATCHALL "using [A-Za-z0-9_:]+::[A-Za-z0-9_]+" brought "${lines}")
  list(TRANSFORM brought REPLACE "using " "")
  list(REMOVE_DUPLICATES brought)
  set(${used} "${brought}" PARENT_SCOPE)
  string(REGEX REPLACE "using [A-Za-z0-9_:]+::[A-Za-z0-9_]+" "" lines "${lines}")
  string(REGEX REPLACE "[A-Za-z0-9_]+::[~A-Za-z0-9_]+" "" lines "${lines}")  # Class::function
  string(REGEX MATCHALL "(struct|class|enum) [A-Za-z0-9_]+|[A-Za-z_][A-Za-z0-9_]*( =|[{(;[])"
    names "${lines}")
  string(REGEX REPLACE "(struct|class|enum) |[^A-Za-z0-9_;]" "" names "${names}")
  list(REMOVE_DUPLICATES names)
  set(brought_names ${brought})  # "new Moment;" declares no Moment
  list(TRANSFORM brought_names REPLACE ".*::" "")
  list(REMOVE_ITEM names "" int void bool double float T class __launch_bounds__ ${brought_names})
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

# Collects the type names in headers. In a unit, a file that defines a type with a name from this list could conflict
# with a header. `aliases` gets the aliases of standard types, which a header and a file may both define. The .cuh
# headers and the headers of the emulation are read only if `for_kernels` is set, because only kernels and the
# emulation's tests include them.
function(convscope_header_types for_kernels out aliases)
  set(globs ${convscope_folders} tests)
  list(TRANSFORM globs APPEND /*.*h)  # .h, .cuh
  list(TRANSFORM globs PREPEND ${PROJECT_SOURCE_DIR}/)
  file(GLOB_RECURSE headers ${globs})
  if(NOT for_kernels)
    list(FILTER headers EXCLUDE REGEX "\\.cuh$|/framework/cuda/emulation/")
  endif()
  set(all "")
  set(all_aliases "")
  foreach(header IN LISTS headers)
    file(STRINGS ${header} lines REGEX "^(struct|class|enum|using) ")
    convscope_name_aliases("${lines}" lines)
    string(REGEX MATCHALL "using alias_[A-Za-z0-9_:]+" types "${lines}")
    list(APPEND all_aliases ${types})
    string(REGEX REPLACE "using alias_[A-Za-z0-9_:]+" "" lines "${lines}")
    string(REGEX MATCHALL "(struct|class|enum|using) (class )?(CONVSCOPE_API )?[A-Za-z0-9_]+" types
      "${lines}")
    list(APPEND all ${types})
  endforeach()
  list(TRANSFORM all REPLACE ".* " "")
  list(REMOVE_DUPLICATES all)
  list(TRANSFORM all_aliases REPLACE "using " "")
  list(REMOVE_DUPLICATES all_aliases)
  set(${out} "${all}" PARENT_SCOPE)
  set(${aliases} "${all_aliases}" PARENT_SCOPE)
endfunction()

# Replaces the source files in the list `sources_variable` by generated files ("units"), each of which includes
# several source files. Two files that declare the same name go into different units. A file with separate options or
# macros stays as it is. A third argument sets the maximum number of files in a unit.
function(convscope_unite name sources_variable)
  if(NOT CONVSCOPE_UNITY)
    return()
  endif()
  set(most 12)  # enough units for all cores
  if(ARGN)
    set(most ${ARGN})
  endif()
  set(for_kernels OFF)
  if("${${sources_variable}}" MATCHES "\\.cu(;|$)|emulation_test\\.cpp(;|$)")
    set(for_kernels ON)
  endif()
  convscope_header_types(${for_kernels} header_types header_aliases)
  set(short_aliases ${header_aliases})
  list(TRANSFORM short_aliases REPLACE ".*::" "")
  set(left "")
  set(units 0)
  foreach(source IN LISTS ${sources_variable})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    convscope_declared_names(${source} names used)
    # Names that the project's headers declare, too.
    set(project_names ${used})
    list(FILTER project_names EXCLUDE REGEX "^(std|testing)::")
    set(other_aliases ${project_names})
    list(REMOVE_ITEM other_aliases ${header_aliases})
    list(TRANSFORM other_aliases REPLACE ".*::" "")
    list(TRANSFORM project_names REPLACE ".*::" "")
    set(all ${names} ${other_aliases} / ${project_names})
    set(own ${names} ${other_aliases})
    list(REMOVE_ITEM own ${header_types} ${short_aliases})
    set(own_project_names ${project_names})
    list(REMOVE_ITEM own_project_names ${header_types})
    list(APPEND own / ${own_project_names})
    file(STRINGS ${source} for_all_below REGEX "^(using namespace|#define|#undef)")
    set(alone OFF)
    if(CONVSCOPE_ALONE AND source MATCHES "${CONVSCOPE_ALONE}")
      set(alone ON)
    endif()
    if(alone OR options OR definitions OR for_all_below OR NOT own STREQUAL all)
      list(APPEND left ${source})
      continue()
    endif()
    set(chosen "")
    convscope_unit_for("${names}" "${used}" chosen)
    if(chosen STREQUAL "")
      message(FATAL_ERROR "expected a unit for ${source}, which has the same name twice: ${names} ${used}")
    endif()
    list(APPEND files_${chosen} ${source})
    list(APPEND names_${chosen} ${names})
    list(APPEND used_${chosen} ${used})
    list(REMOVE_DUPLICATES used_${chosen})
    if(chosen EQUAL units)
      math(EXPR units "${units} + 1")
    endif()
  endforeach()
  set(unit 0)
  while(unit LESS units)
    list(LENGTH files_${unit} count)
    if(count GREATER 1)
      set(own_files ${files_${unit}})
      list(TRANSFORM files_${unit} REPLACE "(.+)" "#include \"\\1\"\n")
      string(JOIN "" text ${files_${unit}})
      list(GET own_files 0 first)
      cmake_path(GET first EXTENSION LAST_ONLY extension)
      set(files_${unit} ${PROJECT_BINARY_DIR}/units/${name}_${unit}${extension})
      file(CONFIGURE OUTPUT ${files_${unit}} CONTENT "${text}" @ONLY)
      # A local name may hide a name of another file in the unit (-Wshadow), and a class may contain types that only its
      # file knows (-Wsubobject-linkage). With much inlining, GCC 12 wrongly reports out-of-bounds copies in std::string
      # (GCC bug 105651). So these warnings are switched off in units. nvcc has neither these options nor these
      # warnings.
      if(NOT extension STREQUAL ".cu")
        set_source_files_properties(${files_${unit}} PROPERTIES COMPILE_OPTIONS "-Wno-shadow;\
$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;-Wno-stringop-overflow;-Wno-stringop-overread;-Wno-array-bounds>")
      endif()
    endif()
    list(APPEND left ${files_${unit}})
    math(EXPR unit "${unit} + 1")
  endwhile()
  # After a change, two files of a unit may declare the same name, so CMake configures again.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${${sources_variable}})
  set(${sources_variable} ${left} PARENT_SCOPE)
endfunction()

# Finds the first unit that has fewer than `most` files and neither declares nor imports any of the
# names. If there is none, makes a new unit.
function(convscope_unit_for names used out)
  foreach(unit RANGE ${units})
    list(LENGTH files_${unit} count)
    set(brought ${used_${unit}} ${used})
    list(REMOVE_DUPLICATES brought)
    list(TRANSFORM brought REPLACE ".*::" "")
    set(shared ${names_${unit}} ${names} ${brought})
    list(LENGTH shared all)
    list(REMOVE_DUPLICATES shared)
    list(LENGTH shared different)
    if(count LESS most AND all EQUAL different)
      set(${out} ${unit} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()
