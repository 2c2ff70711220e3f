# Ogg::ogg: the distribution's libogg comes without CMake files.
find_path(Ogg_INCLUDE_DIR ogg/ogg.h)
find_library(Ogg_LIBRARY ogg)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Ogg DEFAULT_MSG Ogg_LIBRARY Ogg_INCLUDE_DIR)
if(Ogg_FOUND AND NOT TARGET Ogg::ogg)
  add_library(Ogg::ogg UNKNOWN IMPORTED)
  set_target_properties(Ogg::ogg PROPERTIES IMPORTED_LOCATION ${Ogg_LIBRARY}
                                                  INTERFACE_INCLUDE_DIRECTORIES ${Ogg_INCLUDE_DIR})
endif()
