// Functions that add each part of the core to the Python module; one file per part.
#pragma once

#include <nanobind/nanobind.h>

namespace wt::bind {

void bind_control(nanobind::module_& m);
void bind_dag(nanobind::module_& m);
void bind_fabric(nanobind::module_& m);
void bind_faults(nanobind::module_& m);
void bind_flow(nanobind::module_& m);
void bind_packet(nanobind::module_& m);
void bind_serve(nanobind::module_& m);
void bind_steady(nanobind::module_& m);
void bind_trace(nanobind::module_& m);
void bind_turns(nanobind::module_& m);

}  // namespace wt::bind
