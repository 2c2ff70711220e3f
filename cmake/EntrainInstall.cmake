# cmake --install: the `entrain` program, and the torch-free core as entrain::core for find_package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(core_packages base balance spec families dataset cost graph simulator schedule baselines assigner step planner report study)
list(TRANSFORM core_packages PREPEND entrain_ OUTPUT_VARIABLE core_targets)

# Packages see the repository's root while they are built, the install folder's include afterwards.
add_library(entrain_core INTERFACE)
set_target_properties(entrain_core PROPERTIES EXPORT_NAME core)
# Public headers include nlohmann/json.hpp, which need not lie among the system's.
target_link_libraries(entrain_core INTERFACE ${core_targets}
                                             $<INSTALL_INTERFACE:nlohmann_json::nlohmann_json>)
add_library(entrain::core ALIAS entrain_core)

install(TARGETS entrain_core ${core_targets} entrain_options
        EXPORT entrainTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        COMPONENT core)
install(TARGETS entrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
if(ENTRAIN_ENGINE)
  install(TARGETS entrain-engine RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
# What `entrain index --tokenizer` starts; _engine.so belongs to a build folder.
install(DIRECTORY ${CMAKE_BINARY_DIR}/python/entrain
        DESTINATION ${CMAKE_INSTALL_DATADIR}/entrain/python
        COMPONENT program
        FILES_MATCHING PATTERN "*.py")
install(DIRECTORY ${CMAKE_SOURCE_DIR}/entrain/core
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/entrain
        COMPONENT core
        FILES_MATCHING PATTERN "*.h")
install(EXPORT entrainTargets
        NAMESPACE entrain::
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/entrain
        COMPONENT core)

configure_package_config_file(
  ${CMAKE_SOURCE_DIR}/cmake/entrainConfig.cmake.in ${CMAKE_BINARY_DIR}/entrainConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/entrain)
# Before 1.0 any minor version may change what headers promise.
write_basic_package_version_file(
  ${CMAKE_BINARY_DIR}/entrainConfigVersion.cmake VERSION ${PROJECT_VERSION}
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/entrainConfig.cmake ${CMAKE_BINARY_DIR}/entrainConfigVersion.cmake
              ${CMAKE_SOURCE_DIR}/cmake/FindSndFile.cmake ${CMAKE_SOURCE_DIR}/cmake/FindWebP.cmake
              ${CMAKE_SOURCE_DIR}/cmake/FindMpg123.cmake ${CMAKE_SOURCE_DIR}/cmake/FindOgg.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/entrain
        COMPONENT core)
