# Mpg123::mpg123: the distribution's libmpg123 comes without CMake files.
find_path(Mpg123_INCLUDE_DIR mpg123.h)
find_library(Mpg123_LIBRARY mpg123)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Mpg123 DEFAULT_MSG Mpg123_LIBRARY Mpg123_INCLUDE_DIR)
if(Mpg123_FOUND AND NOT TARGET Mpg123::mpg123)
  add_library(Mpg123::mpg123 UNKNOWN IMPORTED)
  set_target_properties(Mpg123::mpg123 PROPERTIES IMPORTED_LOCATION ${Mpg123_LIBRARY}
                                                  INTERFACE_INCLUDE_DIRECTORIES ${Mpg123_INCLUDE_DIR})
endif()
