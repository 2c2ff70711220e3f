#include "entrain/cli/exit_code.h"

#include <exception>
#include <iostream>
#include <new>

#include "entrain/core/base/errors.h"

#include "entrain/cli/command.h"

namespace entrain::cli {

int exit_code_of(const std::function<int()>& command) {
  try {
    return command();
  } catch (const InvalidInput& error) {
    std::cerr << "entrain: " << error.what() << std::endl;
    return kExitInvalid;
  } catch (const NothingFits& no) {
    std::cerr << "entrain: nothing fits: " << no.what() << std::endl;
    return kExitNo;
  } catch (const SystemFailure& error) {
    std::cerr << "entrain: " << error.what() << std::endl;
    return kExitSystem;
  } catch (const std::bad_alloc&) {
    std::cerr << "entrain: out of memory" << std::endl;
    return kExitSystem;
  } catch (const std::exception& error) {
    std::cerr << "entrain: " << error.what() << "\nThis is a bug in Entrain; please report it."
              << std::endl;
    return kExitBug;
  }
}

}  // namespace entrain::cli
