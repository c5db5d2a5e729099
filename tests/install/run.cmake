# SPDX-License-Identifier: Apache-2.0
# Installs the build in `build_dir` to a fresh prefix, builds the project beside this file against
# it, and runs what came out. `work_dir` is scratch.
cmake_policy(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${work_dir})
file(MAKE_DIRECTORY ${work_dir})

run(${CMAKE_COMMAND} --install ${build_dir} --prefix ${work_dir}/prefix)

# Every installed header, so that none of them needs a file that was not installed.
file(GLOB_RECURSE headers RELATIVE ${work_dir}/prefix/include ${work_dir}/prefix/include/*.hpp)
set(includes "")
foreach(header IN LISTS headers)
  string(APPEND includes "#include <${header}>\n")
endforeach()
file(WRITE ${work_dir}/source/all_headers.hpp "${includes}")
file(COPY ${CMAKE_CURRENT_LIST_DIR}/CMakeLists.txt ${CMAKE_CURRENT_LIST_DIR}/consumer.cpp
  DESTINATION ${work_dir}/source)

run(${CMAKE_COMMAND} -G Ninja -S ${work_dir}/source -B ${work_dir}/build
  -D CMAKE_PREFIX_PATH=${work_dir}/prefix -D CMAKE_CXX_COMPILER=${compiler}
  -D CMAKE_CXX_FLAGS=${flags})
run(${CMAKE_COMMAND} --build ${work_dir}/build)
run(${work_dir}/build/consumer)
