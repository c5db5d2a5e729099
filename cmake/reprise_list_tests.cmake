# SPDX-License-Identifier: Apache-2.0
# Runs inside ctest. Expects executable, test_list, working_dir and labels; registers the tests.
cmake_policy(VERSION 3.25)

# Sets `out` to the titles of the tests that match `spec`. Catch2 2 answers their number as its exit
# code, so a failure to start shows only as an empty answer.
function(titles_of spec out)
  execute_process(COMMAND ${executable} --list-test-names-only ${spec}
    WORKING_DIRECTORY ${working_dir} OUTPUT_VARIABLE text ERROR_VARIABLE complaint)
  if(NOT complaint STREQUAL "")
    message(FATAL_ERROR "${executable} cannot list its tests:\n${complaint}")
  endif()
  string(REGEX REPLACE "\n$" "" text "${text}")
  string(REPLACE "\n" ";" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

function(write_test_list)
  foreach(label IN LISTS labels)
    titles_of("[${label}],[${label}][.]" titles_${label})
  endforeach()
  titles_of("*" titles)
  if(titles STREQUAL "")
    message(FATAL_ERROR "${executable} lists no tests.")
  endif()
  set(script "")
  foreach(title IN LISTS titles)
    set(marks "")
    foreach(label IN LISTS labels)
      if(title IN_LIST titles_${label})
        list(APPEND marks ${label})
      endif()
    endforeach()
    if(NOT marks)
      set(marks unit)
    endif()
    string(REGEX REPLACE "([],[])" "\\\\\\1" pattern "${title}")
    string(APPEND script
      "add_test([==[${title}]==] [==[${executable}]==] [==[${pattern}]==]"
      " -w NoAssertions)\n"
      "set_tests_properties([==[${title}]==] PROPERTIES WORKING_DIRECTORY [==[${working_dir}]==]"
      " FAIL_REGULAR_EXPRESSION [==[No test cases matched|No tests ran]==]"
      " SKIP_REGULAR_EXPRESSION [==[(^|[^ -~])skipped: ]==] LABELS [==[${marks}]==])\n")
    if("gpu" IN_LIST marks)
      string(APPEND script
        "set_tests_properties([==[${title}]==] PROPERTIES RESOURCE_LOCK gpu)\n")
    endif()
  endforeach()
  file(WRITE ${test_list} "${script}")
endfunction()

if(NOT EXISTS ${executable})
  add_test(${executable}_is_not_built ${executable})
else()
  if(NOT EXISTS ${test_list} OR ${executable} IS_NEWER_THAN ${test_list})
    write_test_list()
  endif()
  include(${test_list})
endif()
