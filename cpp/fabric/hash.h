// Hashes of flows: a 64-bit finaliser that changes half of the output's bits for any changed bit of the input.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wt::fabric {

// Stafford's variant 13 of MurmurHash3's finaliser.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

// The remainder, and not a multiply-shift, as switches do it: polarisation then depends on the greatest common divisor of the
// tiers.
constexpr std::size_t pick(std::uint64_t hash, std::size_t choices) {
  return static_cast<std::uint32_t>(hash >> 32U) % static_cast<std::uint32_t>(choices);
}

}  // namespace wt::fabric
