# Files compiled together: their headers are parsed once, and what templates make of them is compiled
# once. CONVSCOPE_UNITY is for builds that nobody debugs: a changed file compiles its whole unit again.
option(CONVSCOPE_UNITY "Compile files that are no kernels in units of several" OFF)
set(CONVSCOPE_ALONE "" CACHE STRING
  "Files to compile alone all the same, a regular expression: the folder that one works in")

# The names that a file declares at the outermost level, or rather all words of such lines that could
# be one: namespaces are not indented here. A macro that registers an entry counts as a name, because
# it declares the same one in each file; those left out make a new name of their arguments.
function(convscope_declared_names file out)
  file(STRINGS ${file} lines REGEX "^[A-Za-z_]")
  list(FILTER lines EXCLUDE REGEX
    "^(namespace|CONVSCOPE_(KERNEL|REGISTER_SCHEDULE)|TEST|TYPED_TEST|INSTANTIATE_)")
  string(REGEX REPLACE "using [A-Za-z0-9_:]+::([A-Za-z0-9_]+)" "\\1(" lines "${lines}")
  string(REGEX REPLACE "[A-Za-z0-9_]+::[~A-Za-z0-9_]+" "" lines "${lines}")  # Class::function
  string(REGEX MATCHALL "(struct|class|enum) [A-Za-z0-9_]+|[A-Za-z_][A-Za-z0-9_]*( =|[{(;[])"
    names "${lines}")
  string(REGEX REPLACE "(struct|class|enum) |[^A-Za-z0-9_;]" "" names "${names}")
  list(REMOVE_DUPLICATES names)
  list(REMOVE_ITEM names "" int void bool double float T class __launch_bounds__)
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

# A file that gives a name to a type of its own which a header uses too could not see both.
function(convscope_header_types out)
  set(globs ${convscope_folders} tests)
  list(TRANSFORM globs APPEND /*.*h)  # .h, .cuh
  list(TRANSFORM globs PREPEND ${PROJECT_SOURCE_DIR}/)
  file(GLOB_RECURSE headers ${globs})
  set(all "")
  foreach(header IN LISTS headers)
    file(STRINGS ${header} lines REGEX "^(struct|class|enum|using) ")
    string(REGEX MATCHALL "(struct|class|enum|using) (class )?(CONVSCOPE_API )?[A-Za-z0-9_]+" types
      "${lines}")
    list(APPEND all ${types})
  endforeach()
  list(TRANSFORM all REPLACE ".* " "")
  list(REMOVE_DUPLICATES all)
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

# Replaces the list `sources_variable` by one of files that include them. Two files that declare the
# same name go into different units. A file with options or macros of its own stays as it is. A third
# argument is the number of files in a unit.
function(convscope_unite name sources_variable)
  if(NOT CONVSCOPE_UNITY)
    return()
  endif()
  set(most 12)  # so that all cores have work
  if(ARGN)
    set(most ${ARGN})
  endif()
  convscope_header_types(header_types)
  set(left "")
  set(units 0)
  foreach(source IN LISTS ${sources_variable})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    convscope_declared_names(${source} names)
    set(own ${names})
    list(REMOVE_ITEM own ${header_types})
    file(STRINGS ${source} for_all_below REGEX "^(using namespace|#define|#undef)")
    set(alone OFF)
    if(CONVSCOPE_ALONE AND source MATCHES "${CONVSCOPE_ALONE}")
      set(alone ON)
    endif()
    if(alone OR options OR definitions OR for_all_below OR NOT own STREQUAL names)
      list(APPEND left ${source})
      continue()
    endif()
    convscope_unit_for("${names}" chosen)
    list(APPEND files_${chosen} ${source})
    list(APPEND names_${chosen} ${names})
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
      # Local names hide those of a neighbour, and a class may hold what its own file alone knows. GCC
      # 12 sees copies beyond all bounds in std::string where it inlines much (GCC bug 105651).
      # nvcc has not these options, nor these warnings.
      if(NOT extension STREQUAL ".cu")
        set_source_files_properties(${files_${unit}} PROPERTIES COMPILE_OPTIONS "-Wno-shadow;\
$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;-Wno-stringop-overflow;-Wno-stringop-overread;-Wno-array-bounds>")
      endif()
    endif()
    list(APPEND left ${files_${unit}})
    math(EXPR unit "${unit} + 1")
  endwhile()
  # A change may declare a name that another file of its unit has.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${${sources_variable}})
  set(${sources_variable} ${left} PARENT_SCOPE)
endfunction()

# The first unit, of those of the caller, that has room (`most`) and none of the names; else a new one.
function(convscope_unit_for names out)
  foreach(unit RANGE ${units})
    list(LENGTH files_${unit} count)
    set(shared ${names_${unit}} ${names})
    list(LENGTH shared all)
    list(REMOVE_DUPLICATES shared)
    list(LENGTH shared different)
    if(count LESS most AND all EQUAL different)
      set(${out} ${unit} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()
