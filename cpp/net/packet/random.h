// Random numbers that depend on their purpose, not on the time at which they are drawn.
#pragma once

#include <cstdint>

namespace wt::net::packet {

[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

[[nodiscard]] constexpr std::uint64_t draw(std::uint64_t seed, std::uint64_t who, std::uint64_t count) {
  return mix(mix(seed ^ mix(who)) + count);
}

// In [0, 1).
[[nodiscard]] constexpr double uniform(std::uint64_t seed, std::uint64_t who, std::uint64_t count) {
  return static_cast<double>(draw(seed, who, count) >> 11) * 0x1.0p-53;
}

}  // namespace wt::net::packet
