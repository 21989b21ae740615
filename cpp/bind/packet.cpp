// The packet engine, for Python.
#include "bind/columns.h"
#include "bind/parts.h"

namespace wt::bind {

void bind_packet(nb::module_&) {}

}  // namespace wt::bind
