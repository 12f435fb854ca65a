include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Fovea)

install(DIRECTORY include/fovea DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.def")
install(TARGETS fovea EXPORT FoveaTargets)
# Where src/cuda/libraries looks for it, and nothing else does.
install(FILES $<TARGET_FILE:fovea_standin> DESTINATION ${CMAKE_INSTALL_LIBDIR}/fovea/standin RENAME libcuda.so.1)
# Where src/store looks for them; none if the target fovea_stock was not built.
install(DIRECTORY ${PROJECT_BINARY_DIR}/fovea-stock/ DESTINATION ${CMAKE_INSTALL_LIBDIR}/fovea/stock OPTIONAL
  FILES_MATCHING PATTERN "*.fovea")
if(FOVEA_CLI)
  install(TARGETS fovea_cli)
endif()

# Before 1.0 a minor version may break its callers, so only the same minor version answers find_package.
configure_package_config_file(cmake/FoveaConfig.cmake.in ${PROJECT_BINARY_DIR}/FoveaConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/FoveaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/FoveaConfig.cmake ${PROJECT_BINARY_DIR}/FoveaConfigVersion.cmake
  DESTINATION ${package_dir})
install(EXPORT FoveaTargets NAMESPACE Fovea:: DESTINATION ${package_dir})
