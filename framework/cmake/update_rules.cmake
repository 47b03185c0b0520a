# Writes <convscope/update_rules.h>: UpdateRules, the list of the structs *Rule in framework/ops/update_rules/
# (framework/ops/update_rule.h).
file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/framework/ops/update_rules/*.h)
set(rules "")
set(text "#pragma once\n")
foreach(header IN LISTS headers)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} found REGEX "^struct [A-Za-z0-9]+Rule ")
  list(TRANSFORM found REPLACE "^struct ([A-Za-z0-9]+) .*" "\\1")
  list(APPEND rules ${found})
  string(APPEND text "#include \"${header}\"\n")
endforeach()
list(JOIN rules ", " rules)
set(convscope_generated_includes ${PROJECT_BINARY_DIR}/generated)
file(CONFIGURE OUTPUT ${convscope_generated_includes}/convscope/update_rules.h @ONLY CONTENT
  "${text}namespace convscope {\nusing UpdateRules = UpdateRuleList<${rules}>;\n}\n")
