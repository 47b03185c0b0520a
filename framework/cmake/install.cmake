# Install locations of `cmake --install`, and the package for find_package(convscope).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(convscope_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/convscope)

install(TARGETS convscope EXPORT convscopeTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET convscope_cuda)  # opened at run time from the folder of libconvscope
  install(TARGETS convscope_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
endif()
foreach(baseline IN ITEMS onednn)  # opened the same way
  if(TARGET convscope_baseline_${baseline})
    install(TARGETS convscope_baseline_${baseline} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()
file(RELATIVE_PATH convscope_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
# The RPATH is relative to the program, in the build folder and in the installed tree. Without
# BUILD_WITH_INSTALL_RPATH, CMake pads the shorter path of the build folder with ':', and an empty entry would make the
# loader search the current folder.
set_target_properties(convscope_cli PROPERTIES BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "$ORIGIN/${convscope_bin_to_lib};$ORIGIN/../lib")
install(TARGETS convscope_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The manual page and the shell completions are printed by the program.
set(convscope_guide ${PROJECT_BINARY_DIR}/guide)
install(CODE "
  function(convscope_say name)
    execute_process(COMMAND \"$<TARGET_FILE:convscope_cli>\" \${ARGN}
      OUTPUT_FILE \"${convscope_guide}/\${name}\" COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  file(MAKE_DIRECTORY \"${convscope_guide}\")
  convscope_say(convscope.1 man)
  convscope_say(convscope completion bash)
  convscope_say(_convscope completion zsh)
  convscope_say(convscope.fish completion fish)")
install(FILES ${convscope_guide}/convscope.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${convscope_guide}/convscope
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${convscope_guide}/_convscope DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${convscope_guide}/convscope.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# Makes <convscope/notebook.h> for the build folder and for the installed tree; only the path to the
# library differs.
file(RELATIVE_PATH convscope_notebook_to_library ${PROJECT_BINARY_DIR}/notebook/include/convscope
  ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libconvscope.so)
configure_file(framework/cmake/notebook.h.in notebook/include/convscope/notebook.h @ONLY)
file(RELATIVE_PATH convscope_notebook_to_library ${CMAKE_INSTALL_FULL_INCLUDEDIR}/convscope
  ${CMAKE_INSTALL_FULL_LIBDIR}/libconvscope.so)
configure_file(framework/cmake/notebook.h.in notebook/installed/notebook.h @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/notebook/installed/notebook.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/convscope)
install(DIRECTORY experiments/notebooks DESTINATION ${CMAKE_INSTALL_DATADIR}/convscope
  FILES_MATCHING PATTERN "*.ipynb" PATTERN "*.py" PATTERN "*.txt" PATTERN "*.md"
  PATTERN "cell_guard.inc" PATTERN ".ipynb_checkpoints" EXCLUDE PATTERN "__pycache__" EXCLUDE)

# Makes #include "framework/tensor.h" work in external projects, as inside the repository.
foreach(folder IN LISTS convscope_folders)
  if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/convscope
      FILES_MATCHING PATTERN "*.h" PATTERN "launch.cuh" PATTERN "runtime.cuh"
      PATTERN "baselines" EXCLUDE PATTERN "python" EXCLUDE PATTERN "kernel" EXCLUDE PATTERN "docs" EXCLUDE
      PATTERN "cmake" EXCLUDE PATTERN "configs" EXCLUDE PATTERN "shapes" EXCLUDE)
  endif()
endforeach()
foreach(folder configs shapes schema)
  if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/experiments/${folder})
    install(DIRECTORY experiments/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/convscope)
  endif()
endforeach()
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# All libraries that convscope uses are private, so a project that uses the package need not find them. The build
# folder is such a package, too, so that plug-ins can be built against it.
export(EXPORT convscopeTargets NAMESPACE convscope::
  FILE ${PROJECT_BINARY_DIR}/convscopeTargets.cmake)
install(EXPORT convscopeTargets NAMESPACE convscope:: DESTINATION ${convscope_package_dir})
configure_package_config_file(framework/cmake/convscopeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/convscopeConfig.cmake INSTALL_DESTINATION ${convscope_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/convscopeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/convscopeConfig.cmake
  ${PROJECT_BINARY_DIR}/convscopeConfigVersion.cmake DESTINATION ${convscope_package_dir})
