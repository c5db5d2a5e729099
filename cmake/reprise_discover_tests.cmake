# SPDX-License-Identifier: Apache-2.0
# Makes each TEST_CASE of a Catch2 executable a CTest test of its own.
#
# The list is taken when ctest runs, not when the executable is built, and only if the executable is
# newer than the last list; so a build never runs what it made. A test's tag becomes its label for
# every tag named in LABELS; a test with none of them is labelled "unit".
#
# A test case that makes no assertion fails, and so does a title that matches none (Catch2 2 takes
# -w only once, so ctest looks for its words). One that prints a line "skipped: why" counts as
# skipped. (The character before "skipped" must not be printable: messages of failed
# assertions are indented and may quote that very word.)
function(reprise_discover_tests target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LABELS")
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${target}_discover.cmake)
  file(GENERATE OUTPUT ${script} CONTENT
"set(executable \"$<TARGET_FILE:${target}>\")
set(test_list \"${CMAKE_CURRENT_BINARY_DIR}/${target}_list.cmake\")
set(working_dir \"${PROJECT_SOURCE_DIR}\")
set(labels \"${arg_LABELS}\")
include(\"${PROJECT_SOURCE_DIR}/cmake/reprise_list_tests.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()
