// Events inside events on the threads that they ran on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace wt::trace {

// Events that are in order of their begin: of those that begin together the longer first, else as they were.
void put_longer_first(std::span<std::int32_t> events, std::span<const double> begin, std::span<const double> seconds);

// The event around each of some events on its lane, by its place among them; -1: none. `events` are in order of their begin, the
// longer first, and say where `begin` and `seconds` have theirs; lanes count from 0.
std::vector<std::int32_t> enclosing(std::span<const std::int32_t> events, std::span<const std::int32_t> lanes,
                                    std::span<const double> begin, std::span<const double> seconds);

// The nearest event at or around each one that is marked; -1: none. What is around an event stands before it.
std::vector<std::int32_t> innermost(std::span<const std::int32_t> around, std::span<const std::uint8_t> marked);

}  // namespace wt::trace
