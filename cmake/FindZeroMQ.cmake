# ZeroMQ::ZeroMQ: the distribution's libzmq comes without CMake files.
find_path(ZeroMQ_INCLUDE_DIR zmq.hpp)  # of cppzmq; it brings zmq.h
find_library(ZeroMQ_LIBRARY zmq)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ZeroMQ DEFAULT_MSG ZeroMQ_LIBRARY ZeroMQ_INCLUDE_DIR)
if(ZeroMQ_FOUND AND NOT TARGET ZeroMQ::ZeroMQ)
  add_library(ZeroMQ::ZeroMQ UNKNOWN IMPORTED)
  set_target_properties(ZeroMQ::ZeroMQ PROPERTIES IMPORTED_LOCATION ${ZeroMQ_LIBRARY}
                                                  INTERFACE_INCLUDE_DIRECTORIES ${ZeroMQ_INCLUDE_DIR})
endif()
