# ENTRAIN_DEPS: a folder of tools/collect_deps.sh whose headers, libraries and CMake packages stand in
# for those of the distribution.
if(NOT IS_DIRECTORY ${ENTRAIN_DEPS}/usr/include)
  message(FATAL_ERROR "ENTRAIN_DEPS=${ENTRAIN_DEPS} is no folder of tools/collect_deps.sh: "
                      "usr/include is missing there")
endif()
file(GLOB deps_libraries ${ENTRAIN_DEPS}/usr/lib/*-linux-gnu*)
file(GLOB deps_headers ${ENTRAIN_DEPS}/usr/include/*-linux-gnu*)
list(PREPEND CMAKE_PREFIX_PATH ${ENTRAIN_DEPS}/usr)
foreach(folder ${deps_libraries})
  list(PREPEND CMAKE_PREFIX_PATH ${folder}/cmake)  # of packages whose CMake files lie by architecture
  list(PREPEND CMAKE_LIBRARY_PATH ${folder})
endforeach()
list(PREPEND CMAKE_INCLUDE_PATH ${ENTRAIN_DEPS}/usr/include ${deps_headers})
# Headers without a CMake package (toml++, xxhash), behind all others as the distribution's are: torch
# has an fmt of its own. And programs that find their libraries there.
list(APPEND CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${ENTRAIN_DEPS}/usr/include ${deps_headers})
list(APPEND CMAKE_BUILD_RPATH ${deps_libraries})
add_link_options(-Wl,--disable-new-dtags)  # so that libsndfile finds those that it needs there, too
