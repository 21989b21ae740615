// The core's only error: a program that is wrong or that cannot finish. The Python door turns it into EngineError.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace wt {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error with the parts put together, as in fail("rank ", r, ": ...").
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(text.str());
}

}  // namespace wt
