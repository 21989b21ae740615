// Events inside events on the threads that they ran on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace wt::trace {

// The event around each one on its lane; -1: none. Events are in order of their begin, the longer first; lanes count from 0.
std::vector<std::int32_t> enclosing(std::span<const std::int32_t> lanes, std::span<const double> begin,
                                    std::span<const double> end);

// The nearest event at or around each one that is marked; -1: none. What is around an event stands before it.
std::vector<std::int32_t> innermost(std::span<const std::int32_t> around, std::span<const std::uint8_t> marked);

}  // namespace wt::trace
