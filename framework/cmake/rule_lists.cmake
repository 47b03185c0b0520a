# Writes lists of structs that are one file each. <convscope/HEADER> includes all files of FOLDER and defines LIST as
# TEMPLATE<...> of the structs whose names end in SUFFIX.
set(convscope_generated_includes ${PROJECT_BINARY_DIR}/generated)
function(convscope_rule_list list template suffix folder header)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  set(structs "")
  set(text "#pragma once\n")
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${file} found REGEX "^struct [A-Za-z0-9]+${suffix} ")
    list(TRANSFORM found REPLACE "^struct ([A-Za-z0-9]+) .*" "\\1")
    list(APPEND structs ${found})
    string(APPEND text "#include \"${file}\"\n")
  endforeach()
  list(JOIN structs ", " structs)
  file(CONFIGURE OUTPUT ${convscope_generated_includes}/convscope/${header} @ONLY CONTENT
    "${text}namespace convscope {\nusing ${list} = ${template}<${structs}>;\n}\n")
endfunction()

convscope_rule_list(UpdateRules UpdateRuleList Rule framework/ops/update_rules update_rules.h)
convscope_rule_list(Activations ActivationList Activation layers/activations/rules activations.h)
