#include "net/flow/unknowns.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace wt::net::flow {

namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h = (h ^ x) * 0x9E3779B97F4A7C15ULL;
  return h ^ (h >> 32);
}

// An open table of ids that finds the first one that equals a new one.
class Table {
 public:
  explicit Table(std::size_t n) : slots_(std::bit_ceil(n * 2 + 2), kEmpty) {}

  template <class Same>
  std::int32_t find_or_add(std::uint64_t hash, std::int32_t id, Same&& same) {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
      if (slots_[at] == kEmpty) {
        slots_[at] = id;
        return id;
      }
      if (same(slots_[at])) return slots_[at];
    }
  }

 private:
  static constexpr std::int32_t kEmpty = -1;
  std::vector<std::int32_t> slots_;
};

// For each row the first row with the same content.
std::vector<std::int32_t> first_equal(const Demands& d) {
  const std::size_t rows = d.rows();
  std::vector<std::int32_t> first(rows);
  std::vector<std::uint32_t> tag(rows);
  Table table(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto begin = static_cast<std::size_t>(d.start[r]), n = static_cast<std::size_t>(d.start[r + 1]) - begin;
    std::uint64_t h = n;
    for (std::size_t i = begin; i < begin + n; ++i) h = mix(h, static_cast<std::uint64_t>(d.links[i]));
    if (!d.demand.empty())
      for (std::size_t i = begin; i < begin + n; ++i) h = mix(h, std::bit_cast<std::uint64_t>(d.demand[i]));
    tag[r] = static_cast<std::uint32_t>(h >> 32);
    first[r] = table.find_or_add(h, static_cast<std::int32_t>(r), [&](std::int32_t other) {
      const auto o = static_cast<std::size_t>(other);
      const auto at = static_cast<std::size_t>(d.start[o]);
      if (tag[o] != tag[r] || static_cast<std::size_t>(d.start[o + 1]) - at != n) return false;
      if (n == 0) return true;
      return std::memcmp(&d.links[at], &d.links[begin], n * sizeof(d.links[0])) == 0 &&
             (d.demand.empty() || std::memcmp(&d.demand[at], &d.demand[begin], n * sizeof(d.demand[0])) == 0);
    });
  }
  return first;
}

}  // namespace

Grouped group(const Demands& demands, const Variables& v) {
  const std::size_t n = v.size_of();
  constexpr double kNoBound = std::numeric_limits<double>::infinity();
  const std::vector<std::int32_t> first = first_equal(demands);
  const auto row = [&](std::size_t i) { return first[v.row.empty() ? i : static_cast<std::size_t>(v.row[i])]; };
  const auto bound = [&](std::size_t i) {
    return v.bound.empty() ? kNoBound : v.bound[i] / (v.weight.empty() ? 1.0 : v.weight[i]);
  };

  Grouped out;
  out.of.resize(n);
  const bool bounded = std::any_of(v.bound.begin(), v.bound.end(), [](double b) { return b != kNoBound; });
  std::vector<std::int32_t> by_row(bounded ? 0 : demands.rows(), kNothing);
  Table table(bounded ? n : 0);
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t r = row(i);
    const double b = bound(i);
    const auto rs = static_cast<std::size_t>(r);
    if (b == kNoBound && demands.start[rs] == demands.start[rs + 1]) {
      out.of[i] = kNothing;
      continue;
    }
    const auto fresh = static_cast<std::int32_t>(out.unknowns.size());
    std::int32_t found = fresh;
    if (!bounded) {
      std::int32_t& known = by_row[rs];
      if (known == kNothing) known = fresh;
      found = known;
    } else {
      const std::uint64_t h = mix(static_cast<std::uint64_t>(r), std::bit_cast<std::uint64_t>(b));
      found = table.find_or_add(h, fresh, [&](std::int32_t u) {
        return out.unknowns.row[static_cast<std::size_t>(u)] == r && out.unknowns.bound[static_cast<std::size_t>(u)] == b;
      });
    }
    if (found == fresh) {
      out.unknowns.row.push_back(r);
      out.unknowns.bound.push_back(b);
    }
    out.of[i] = found;
  }
  return out;
}

}  // namespace wt::net::flow
