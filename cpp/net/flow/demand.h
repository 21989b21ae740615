// The input of the flow engine: capacities of links, rows of demands over them, and variables that progress along rows.
//
// A variable is a fluid: it has `size` units to move and moves them at a rate; every unit puts `demand` bytes on each link of its
// row. A plain flow has demand 1 on the links of its path and its bytes as size. A pipelined collective is one variable with, on
// every link that any of its lanes takes, the bytes that cross it for each unit: so its lanes advance together.
//
//     sum over variables of demand[v, l] * rate[v] <= capacity[l]        rate[v] <= bound[v]
//
// and rates are weighted max-min fair: no variable's rate / weight can grow without taking from one whose rate / weight is no
// larger.
//
// All columns are the caller's; the engine only reads them. SI units. An empty column stands for its default.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace wt::net::flow {

struct Demands {
  std::span<const std::int64_t> start;  // [R+1] into links
  std::span<const std::int32_t> links;  // a link may occur more than once: its demands add up
  std::span<const double> demand;       // bytes on the link per unit, > 0; empty: 1

  [[nodiscard]] std::size_t rows() const { return start.empty() ? 0 : start.size() - 1; }
  [[nodiscard]] double at(std::size_t i) const { return demand.empty() ? 1.0 : demand[i]; }
};

struct Variables {
  std::span<const std::int32_t> row;        // [V] of Demands; empty: variable v has row v
  std::span<const double> begin;            // [V] s, the earliest start
  std::span<const double> size;             // [V] units
  std::span<const double> weight;           // [V] > 0; empty: 1
  std::span<const double> bound;            // [V] units/s > 0; empty: infinity
  std::span<const double> latency;          // [V] s from the end of the fluid to its delivery; empty: 0
  std::span<const double> delay;            // [V] s after the last dependency was delivered; empty: 0
  std::span<const std::int64_t> dep_start;  // [V+1] into deps; empty: no dependencies
  std::span<const std::int32_t> deps;       // variables that must have been delivered first

  [[nodiscard]] std::size_t size_of() const { return size.size(); }
};

// Capacities that change while the flows run, in order of time. 0: flows on the link stop.
struct Changes {
  std::span<const double> time;
  std::span<const std::int32_t> link;
  std::span<const double> capacity;
};

// Each throws wt::Error that names the first entry that is wrong.
void validate_capacity(std::span<const double> capacity);
void validate(const Demands& demands, std::size_t links);
void validate(const Changes& changes, std::size_t links);
void validate(const Variables& variables, const Demands& demands);
// A link of no capacity that no change ever gives any, under a row that moves something.
void validate_reach(std::span<const double> capacity, const Changes& changes, const Demands& demands, const Variables& variables);

}  // namespace wt::net::flow
