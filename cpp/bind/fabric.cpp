// Graphs and routes, for Python.
#include "bind/columns.h"
#include "bind/parts.h"

namespace wt::bind {

void bind_fabric(nb::module_&) {}

}  // namespace wt::bind
