// The core's only error: an invalid program, or one that cannot finish. The Python module turns it into EngineError.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace wt {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error with the concatenated parts, as in fail("rank ", r, ": ...").
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(text.str());
}

}  // namespace wt
