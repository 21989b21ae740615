// The program of the exec core: for every rank a list of instances, each a run of a template of operators or a rendezvous.
//
// All columns are the caller's; the core only reads them. Indices of waits are local: an operator's to its template, an
// instance's to its rank. Instances of rank r are rows rank_start[r] .. rank_start[r+1].
#pragma once

#include <cstdint>
#include <span>

namespace wt::exec {

inline constexpr int kMaxStreams = 64;
inline constexpr std::int32_t kRendezvous = -1;  // Instances::tmpl of an instance that takes the next row of Rendezvous

// Instances::flags
inline constexpr std::uint8_t kHostSync = 1;  // the host blocks until the instance has ended
inline constexpr std::uint8_t kJoin = 2;      // each repetition starts no sooner than the end of the one before it

// Templates::comm
inline constexpr std::uint8_t kComputes = 0;
inline constexpr std::uint8_t kCommunicates = 1;  // a communication kernel, which slows computing beside it
inline constexpr std::uint8_t kCopy = 2;          // work of a copy engine or a CPU: slows nothing and is not slowed

struct Templates {
  std::span<const std::int64_t> start;  // [T+1] first operator of each template
  std::span<const std::int32_t> stream;
  std::span<const double> seconds;
  std::span<const double> host;  // host seconds to enqueue
  std::span<const std::int32_t> category;
  std::span<const std::uint8_t> comm;   // kComputes, kCommunicates or kCopy
  std::span<const std::uint8_t> sync;   // 1: the host blocks until the operator has ended
  std::span<const std::int32_t> wait0;  // earlier operator of the template, or -1
  std::span<const std::int32_t> wait1;
  std::span<const std::int32_t> group;  // column of Scales that stretches the operator; empty: 0 for all
  std::span<const std::int32_t> live;   // number of the call whose end the network finds, or -1; empty: none, and ranks are walked
};

struct Instances {
  std::span<const std::int64_t> rank_start;  // [R+1]
  std::span<const std::int32_t> tmpl;        // template, or kRendezvous
  std::span<const std::int32_t> times;
  std::span<const std::uint8_t> flags;
  std::span<const std::int64_t> wait_start;  // [I+1] into waits
  std::span<const std::int32_t> waits;
  std::span<const std::int32_t> scale;  // row of Scales; empty: none is stretched
};

// Factors on operators' seconds, so that instances of one template may differ: row by instance, column by operator.
struct Scales {
  std::span<const double> factor;  // [rows x groups]
  std::int32_t groups = 1;
};

// One row for each instance whose tmpl is kRendezvous, in the order of the instances.
struct Rendezvous {
  std::span<const std::int32_t> stream;
  std::span<const double> host;
  std::span<const std::int32_t> cat_wait;
  std::span<const std::int32_t> cat_transfer;
  std::span<const std::int64_t> part_start;  // [rows+1] into the part columns
  std::span<const std::int64_t> key;
  std::span<const double> seconds;
  std::span<const std::int32_t> participants;
};

struct Options {
  std::int32_t categories = 1;
  double compute_tax = 0.0;      // share of its rate that computing loses while communication is in flight, 0..1
  std::int64_t host_window = 0;  // operators that the host may be ahead of the device; 0: any number
  bool critical_path = true;
  std::span<const std::uint8_t> record;  // [R] 1: keep the times of every operator of the rank
  std::int64_t live_key = 0;             // key of live call n of rank r: live_key + r * live_calls + n
  std::int64_t live_calls = 0;
  std::span<const double> taxes =
      {};                 // [R] in place of compute_tax, where ranks belong to several jobs; empty: compute_tax for all
  bool outcomes = false;  // name what became of each instance (Timeline::outcome)
  double grid = 0.0;      // unit of durations (grid.h), a power of two; 0: they are as stated, and no instance is recalled
};

struct Program {
  Templates templates;
  Instances instances;
  Rendezvous rendezvous;
  Options options;
  Scales scales = {};
};

}  // namespace wt::exec
