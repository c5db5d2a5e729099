# SPDX-License-Identifier: Apache-2.0
# What a build may choose, and the flags that follow from it. Sanitizers and optimisation come from
# CMakePresets.json, since they must reach every object file alike.

option(REPRISE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(REPRISE_EXAMPLES "Build the example programs" ${PROJECT_IS_TOP_LEVEL})
option(REPRISE_BENCH "Build the benchmark program" OFF)
option(REPRISE_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(REPRISE_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})
option(REPRISE_REPOSITORY_TESTS "Test the repository too: tidy, format, installation, examples" OFF)
option(REPRISE_WERROR "Treat warnings as errors" OFF)
option(REPRISE_MARKS "Count reach marks (REPRISE_MARK)" OFF)
option(REPRISE_PLANTED "Compile planted bugs in, and only the tests that catch them" OFF)
option(REPRISE_NATIVE "Use every instruction of this machine's processor" OFF)
option(REPRISE_CCACHE "Compile through ccache where it is installed" ON)
option(REPRISE_PCH "Precompile the headers that nearly every test includes" ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# ccache sees paths relative to the repository, so that another clone finds the same entries. A
# script holds its settings, to keep the compiler's command lines readable.
if(REPRISE_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(REPRISE_CCACHE_PROGRAM ccache)
  mark_as_advanced(REPRISE_CCACHE_PROGRAM)
  if(REPRISE_CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_BINARY_DIR}/ccache)
    file(CONFIGURE OUTPUT ${CMAKE_CXX_COMPILER_LAUNCHER} @ONLY NEWLINE_STYLE UNIX CONTENT
"#!/bin/sh
export CCACHE_BASEDIR='@PROJECT_SOURCE_DIR@' CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
exec '@REPRISE_CCACHE_PROGRAM@' \"$@\"
")
    file(CHMOD ${CMAKE_CXX_COMPILER_LAUNCHER} FILE_PERMISSIONS
      OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endif()
endif()

# The quickest linker at hand. gcc 12 and clang 14 take both names.
if(PROJECT_IS_TOP_LEVEL)
  find_program(REPRISE_LINKER NAMES ld.mold ld.lld)
  mark_as_advanced(REPRISE_LINKER)
  if(REPRISE_LINKER MATCHES "mold$")
    add_link_options(-fuse-ld=mold)
  elseif(REPRISE_LINKER MATCHES "lld$")
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# Flags of our own targets. They are private: what links to Reprise chooses its own warnings.
function(reprise_flags target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic
    # A parameter may have the name of a member; clang's -Wshadow allows that anyway.
    $<IF:$<CXX_COMPILER_ID:GNU>,-Wshadow=local,-Wshadow>)
  if(REPRISE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(REPRISE_NATIVE)
    target_compile_options(${target} PRIVATE -march=native)
  endif()
  # __FILE__ names "memory/pool.cpp", wherever the repository lies.
  target_compile_options(${target} PRIVATE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
endfunction()
