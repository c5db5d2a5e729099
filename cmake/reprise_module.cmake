# SPDX-License-Identifier: Apache-2.0
# One module is one folder, one static library and one include root.
#
# The root is <build>/headers/<module>, which holds one link, reprise/<module>, to the folder. So
# all code writes #include <reprise/memory/pool.hpp>, and a module sees only the roots of the
# modules that it links to: an include that points upwards finds no file.

set(REPRISE_MODULES "" CACHE INTERNAL "Modules so far, bottom first")

# reprise_module(name [DEPENDS module...] [LIBRARIES target...])
function(reprise_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPENDS;LIBRARIES")
  set(target reprise_${name})
  set(root ${PROJECT_BINARY_DIR}/headers/${name})
  file(MAKE_DIRECTORY ${root}/reprise)
  if(NOT EXISTS ${root}/reprise/${name})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/reprise/${name} SYMBOLIC)
  endif()

  reprise_sources(sources ${CMAKE_CURRENT_SOURCE_DIR})
  reprise_headers(headers ${CMAKE_CURRENT_SOURCE_DIR})
  list(TRANSFORM headers PREPEND ${root}/reprise/${name}/)
  if(NOT sources)
    # A module of headers only is still a library, so that its dependents need not care.
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    file(CONFIGURE OUTPUT ${sources} CONTENT "// No sources yet.\n")
  endif()

  add_library(${target} STATIC ${sources})
  add_library(reprise::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${root} FILES ${headers})
  reprise_flags(${target})
  foreach(dependency IN LISTS arg_DEPENDS)
    target_link_libraries(${target} PUBLIC reprise_${dependency})
  endforeach()
  target_link_libraries(${target} PUBLIC ${arg_LIBRARIES})
  set(REPRISE_MODULES ${REPRISE_MODULES} ${name} CACHE INTERNAL "")
endfunction()

# Include roots that a module's files are compiled with: its own and those of what it links to.
function(reprise_include_roots out name)
  set(roots "")
  set(seen "")
  set(todo ${name})
  while(todo)
    list(POP_FRONT todo module)
    list(APPEND seen ${module})
    list(APPEND roots ${PROJECT_BINARY_DIR}/headers/${module})
    get_target_property(own reprise_${module} INCLUDE_DIRECTORIES)
    get_target_property(libraries reprise_${module} LINK_LIBRARIES)
    list(APPEND roots ${own})
    foreach(library IN LISTS libraries)
      if(library MATCHES "^reprise(_|::)(.+)$" AND NOT CMAKE_MATCH_2 IN_LIST seen)
        list(APPEND todo ${CMAKE_MATCH_2})
      endif()
    endforeach()
  endwhile()
  list(FILTER roots EXCLUDE REGEX "NOTFOUND$|^\\$<")
  list(REMOVE_DUPLICATES roots)
  set(${out} ${roots} PARENT_SCOPE)
endfunction()

# Fails the configuration unless each module compiles an include of itself and of every module
# below it, and does not compile an include of any module above it. Each root holds an empty
# marker header for this, so that the check needs no particular file of a module.
function(reprise_check_layering)
  foreach(name IN LISTS REPRISE_MODULES)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/headers/${name}/reprise/layer_${name}.hpp
         CONTENT "#pragma once\n")
  endforeach()
  foreach(name IN LISTS REPRISE_MODULES)
    reprise_include_roots(roots ${name})
    set(above FALSE)
    foreach(other IN LISTS REPRISE_MODULES)
      _reprise_can_include(${name} ${other} "${roots}" can_include)
      if(above AND can_include)
        message(FATAL_ERROR
          "Layering is broken: a file in ${name}/ can include <reprise/${other}/...>, which lies "
          "above it. See what reprise_${name} links to.")
      elseif(NOT above AND NOT can_include)
        message(FATAL_ERROR
          "A file in ${name}/ cannot include <reprise/${other}/...>, which it may. Is the C++ "
          "compiler working, and does reprise_${name} link to reprise_${other}?")
      endif()
      if(other STREQUAL name)
        set(above TRUE)
      endif()
    endforeach()
  endforeach()
  message(STATUS "Layering: includes only point downwards (${REPRISE_MODULES})")
endfunction()

# Compiles a file that includes `other` with the include roots of `name`. An answer is kept for as
# long as the roots are the same.
function(_reprise_can_include name other roots out)
  string(SHA1 key "${roots}")
  string(SUBSTRING ${key} 0 8 key)
  set(answer REPRISE_LAYER_${name}_${other}_${key})
  if(NOT DEFINED ${answer})
    set(folder ${PROJECT_BINARY_DIR}/layering)
    set(source ${folder}/${name}_includes_${other}.cpp)
    file(WRITE ${source} "#include <reprise/layer_${other}.hpp>\n")
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
    try_compile(${answer} ${folder}/${name}_${other} SOURCES ${source}
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${roots}")
  endif()
  set(${out} ${${answer}} PARENT_SCOPE)
endfunction()
