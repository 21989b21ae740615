// A network that exec can run a step over, as Python holds it. Registered in core.cpp; flow.cpp and packet.cpp add their own below
// it:
//   nb::class_<FlowNetwork, wt::net::Network>(m, "FlowNetwork")
#pragma once

#include "bind/columns.h"
#include "net/network.h"
