// The message of an error that a call must throw.
#pragma once

#include <exception>
#include <string>

#include <gtest/gtest.h>

namespace entrain::oracle {

// Message of the `Error` that `call` throws. Fails the test, and returns "", when it throws nothing
// or something else.
template <class Error, class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "an error of another type: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace entrain::oracle
