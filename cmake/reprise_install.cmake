# SPDX-License-Identifier: Apache-2.0
# Headers go to include/reprise/<module>/, libraries to lib/, and find_package(reprise) finds both.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/reprise)
install(TARGETS reprise reprise_memory reprise_device reprise_capture reprise_runtime
  EXPORT reprise-targets
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT reprise-targets NAMESPACE reprise:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/reprise-config.cmake.in
  ${PROJECT_BINARY_DIR}/reprise-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/reprise-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/reprise-config.cmake
  ${PROJECT_BINARY_DIR}/reprise-config-version.cmake DESTINATION ${package_dir})
