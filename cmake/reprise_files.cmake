# SPDX-License-Identifier: Apache-2.0
# The one place that says which files belong to what. Adding a file to a room needs no edit: the
# build looks again each time it runs.

# Sources of a module: every .cpp below `folder`.
function(reprise_sources out folder)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS ${folder}/*.cpp)
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# Public headers of a module: every .hpp below `folder`, without *_internal.hpp and detail/.
function(reprise_headers out folder)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*.hpp)
  list(FILTER found EXCLUDE REGEX "_internal\\.hpp$|(^|/)detail/")
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# Sources of the test executable: tests/**/*_test.cpp and tests/support/*.cpp.
function(reprise_test_sources out folder)
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${folder}/*_test.cpp)
  file(GLOB_RECURSE support CONFIGURE_DEPENDS ${folder}/support/*.cpp)
  list(APPEND tests ${support})
  list(REMOVE_DUPLICATES tests)
  set(${out} ${tests} PARENT_SCOPE)
endfunction()

# Programs of a folder: each .cpp directly in it that matches `pattern`.
function(reprise_programs out folder pattern)
  file(GLOB found CONFIGURE_DEPENDS ${folder}/${pattern})
  set(${out} ${found} PARENT_SCOPE)
endfunction()
