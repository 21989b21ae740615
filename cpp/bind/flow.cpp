// The flow engine, for Python.
#include "bind/columns.h"
#include "bind/parts.h"

namespace wt::bind {

void bind_flow(nb::module_&) {}

}  // namespace wt::bind
