// Fewer constraints for the same rates: with few rows, as in coupled collectives, many links have equal demands.
//
// Links of one capacity with the same demands of every row are of one kind, which is one constraint. A kind that another one always
// fills up before (each row's demand over capacity is no larger) constrains nothing; it stays to be metered.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "net/flow/demand.h"

namespace wt::net::flow {

struct Compressed {
  std::vector<std::int32_t> kind;     // [L] of each link, -1: no row uses it
  std::vector<std::int32_t> first;    // [K] the first link of each kind
  std::vector<double> capacity;       // [K]
  std::vector<std::uint8_t> passive;  // [K] 1: constrains nothing
  std::vector<std::int64_t> start;    // rows over kinds
  std::vector<std::int32_t> links;
  std::vector<double> demand;

  [[nodiscard]] Demands demands() const { return {start, links, demand}; }
};

// Links that change keep a kind of their own and are compared with none.
[[nodiscard]] Compressed compress(std::span<const double> capacity, const Demands& demands, const Changes& changes);

}  // namespace wt::net::flow
