// Congestion controls and their parameters, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "bind/parts.h"
#include "net/packet/cc/registry.h"

namespace wt::bind {

namespace nb = nanobind;

namespace {

nb::list congestion_controls() {
  nb::list out;
  for (const net::packet::Algorithm& a : net::packet::algorithms()) {
    nb::list parameters;
    for (const net::packet::Parameter& p : a.parameters) {
      parameters.append(nb::make_tuple(p.name, p.unit, p.value, p.least, p.most, p.meaning));
    }
    const auto control = net::packet::make_control(a.name, {}, 0);
    out.append(nb::make_tuple(a.name, a.meaning, parameters, control->wants_telemetry()));
  }
  return out;
}

}  // namespace

void bind_control(nb::module_& m) {
  m.def("congestion_controls", &congestion_controls,
        "Name, meaning, parameters and need of telemetry of each; see windtunnel.engine.packet.");
}

}  // namespace wt::bind
