// Why a run does not end.
#pragma once

#include "net/packet/world.h"

namespace wt::net::packet {

// Fails if stopped ports wait for each other in a circle (PFC or credit deadlock), naming the nodes.
void check_deadlock(const World& world);

// Fails with the best explanation of lanes that did not end.
[[noreturn]] void explain(const World& world);

}  // namespace wt::net::packet
