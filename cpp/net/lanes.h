// A collective for the network: lanes.
//
// A lane is the stream of slices that one rank sends to another on one channel: slice j of `bytes` cut into pieces of `slice` bytes
// (the last is shorter). Slice j may start once every lane it depends on has delivered enough:
//     delivered(d) >= min(slices(d), j + 1 - lead)            lead = kAll: all of them
// and at most `window` slices are in flight at once (credits; 0: any number). Slices of a lane are sent in order. After its
// dependencies hold, a slice waits `delay` seconds (overhead of the library and the GPU per step) and is then sent at no more
// than `rate`. It is delivered `hold` seconds after the end of sending at that rate, or when its last packet arrives, if that
// is later: the measured hop contains the contention between a collective's own packets. Dependencies name lanes that end
// where this one starts, so that the sending rank knows them without a message. A ring is n lanes per channel, slice j of each
// depending on slice j - lead of the one before it; a tree's parent waits for slice j of all its children; a step of recursive
// halving waits for all of the step before; a send is a lane without dependencies.
//
// `group`: lanes of one group advance together when pipelined; the flow engine makes one variable of each group, the packet engine
// ignores groups. `path`: the links of the lane, rows of a Paths table.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace wt::net {

inline constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::min();

// Links of each path, one after the other.
struct Paths {
  std::span<const std::int64_t> start;  // [P+1] into links
  std::span<const std::int32_t> links;
};

struct Lanes {
  std::span<const std::int32_t> src;        // [K] endpoint
  std::span<const std::int32_t> dst;        // [K] endpoint
  std::span<const std::int32_t> path;       // [K] row of Paths
  std::span<const std::int64_t> bytes;      // [K] on the wire
  std::span<const std::int64_t> slice;      // [K] bytes of a slice, > 0
  std::span<const std::int32_t> window;     // [K] slices in flight at once, 0: any number
  std::span<const double> delay;            // [K] s before each slice
  std::span<const double> rate;             // [K] B/s at most, infinity: as fast as the links
  std::span<const double> begin;            // [K] s, earliest start of the first slice
  std::span<const std::int32_t> group;      // [K] dense
  std::span<const std::int64_t> dep_start;  // [K+1] into dep_*
  std::span<const std::int32_t> dep_lane;
  std::span<const std::int64_t> dep_lead;  // slices that need not wait, or kAll
  std::span<const double> hold = {};       // [K] s, at least, from leaving to delivery; packets only. Empty: none
};

}  // namespace wt::net
