#include "net/flow/compress.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace wt::net::flow {

namespace {

struct Term {
  std::int32_t row;
  double demand;
  bool operator==(const Term&) const = default;
};

// The demands on each link, by row.
struct Columns {
  std::vector<std::int64_t> start;
  std::vector<Term> terms;

  [[nodiscard]] std::span<const Term> of(std::size_t l) const {
    return {terms.data() + start[l], static_cast<std::size_t>(start[l + 1] - start[l])};
  }
};

Columns columns_of(std::size_t links, const Demands& d) {
  Columns c;
  c.start.assign(links + 1, 0);
  for (const std::int32_t l : d.links) ++c.start[static_cast<std::size_t>(l) + 1];
  for (std::size_t l = 0; l < links; ++l) c.start[l + 1] += c.start[l];
  c.terms.resize(d.links.size());
  std::vector<std::int64_t> end(c.start.begin(), c.start.end() - 1);
  for (std::size_t r = 0; r < d.rows(); ++r)
    for (auto i = static_cast<std::size_t>(d.start[r]); i < static_cast<std::size_t>(d.start[r + 1]); ++i) {
      const auto l = static_cast<std::size_t>(d.links[i]);
      if (end[l] > c.start[l] && c.terms[static_cast<std::size_t>(end[l]) - 1].row == static_cast<std::int32_t>(r))
        c.terms[static_cast<std::size_t>(end[l]) - 1].demand += d.at(i);
      else
        c.terms[static_cast<std::size_t>(end[l]++)] = {static_cast<std::int32_t>(r), d.at(i)};
    }
  std::vector<std::int64_t> start(links + 1, 0);  // without the gaps that repeated links left
  std::size_t kept = 0;
  for (std::size_t l = 0; l < links; ++l) {
    for (auto i = c.start[l]; i < end[l]; ++i) c.terms[kept++] = c.terms[static_cast<std::size_t>(i)];
    start[l + 1] = static_cast<std::int64_t>(kept);
  }
  c.terms.resize(kept);
  c.start = std::move(start);
  return c;
}

std::uint64_t hash_of(double capacity, std::span<const Term> column) {
  std::uint64_t h = std::bit_cast<std::uint64_t>(capacity);
  const auto add = [&](std::uint64_t x) {
    h = (h ^ x) * 0x9E3779B97F4A7C15ULL;
    h ^= h >> 32;
  };
  for (const Term& t : column) add(static_cast<std::uint64_t>(t.row)), add(std::bit_cast<std::uint64_t>(t.demand));
  return h;
}

// Each demand over capacity of `a` is no larger than that of `b`.
bool dominated(std::span<const Term> a, double capacity_a, std::span<const Term> b, double capacity_b) {
  std::size_t j = 0;
  for (const Term& t : a) {
    while (j < b.size() && b[j].row < t.row) ++j;
    if (j == b.size() || b[j].row != t.row || t.demand * capacity_b > b[j].demand * capacity_a) return false;
  }
  return true;
}

void find_passive(Compressed& out, const Columns& columns, const std::vector<char>& apart) {
  constexpr std::size_t kTries = 16;
  struct Candidate {
    double ratio;
    std::int32_t kind;
  };
  const std::size_t rows = out.start.size() - 1;
  std::vector<std::vector<Candidate>> hardest(rows);  // the kinds on which each row asks most, as far as tried
  const auto usable = [&](std::size_t k) { return apart[static_cast<std::size_t>(out.first[k])] == 0 && out.capacity[k] > 0.0; };
  for (std::size_t r = 0; r < rows; ++r) {
    auto& list = hardest[r];
    for (auto i = static_cast<std::size_t>(out.start[r]); i < static_cast<std::size_t>(out.start[r + 1]); ++i)
      if (const auto k = static_cast<std::size_t>(out.links[i]); usable(k))
        list.push_back({out.demand[i] / out.capacity[k], out.links[i]});
    const auto keep = std::min(kTries, list.size());
    std::partial_sort(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(keep), list.end(),
                      [](const auto& a, const auto& b) { return a.ratio > b.ratio || (a.ratio == b.ratio && a.kind < b.kind); });
    list.resize(keep);
  }
  for (std::size_t k = 0; k < out.first.size(); ++k) {
    if (!usable(k)) continue;
    const auto column = columns.of(static_cast<std::size_t>(out.first[k]));
    for (const Term& t : column)
      for (const Candidate& c : hardest[static_cast<std::size_t>(t.row)]) {
        const auto other = static_cast<std::size_t>(c.kind);
        if (out.passive[k] != 0 || other == k || out.passive[other] != 0) continue;
        if (dominated(column, out.capacity[k], columns.of(static_cast<std::size_t>(out.first[other])), out.capacity[other]))
          out.passive[k] = 1;
      }
  }
}

}  // namespace

Compressed compress(std::span<const double> capacity, const Demands& demands, const Changes& changes) {
  const std::size_t links = capacity.size();
  const Columns columns = columns_of(links, demands);
  std::vector<char> apart(links, 0);
  for (const std::int32_t l : changes.link) apart[static_cast<std::size_t>(l)] = 1;

  Compressed out;
  out.kind.assign(links, -1);
  std::unordered_multimap<std::uint64_t, std::int32_t> known;
  for (std::size_t l = 0; l < links; ++l) {
    const auto column = columns.of(l);
    if (column.empty()) continue;
    const std::uint64_t h = hash_of(capacity[l], column);
    std::int32_t& kind = out.kind[l];
    if (apart[l] == 0) {
      const auto [from, to] = known.equal_range(h);
      for (auto it = from; it != to && kind < 0; ++it) {
        const auto k = static_cast<std::size_t>(it->second);
        if (out.capacity[k] == capacity[l] && std::ranges::equal(columns.of(static_cast<std::size_t>(out.first[k])), column))
          kind = it->second;
      }
    }
    if (kind >= 0) continue;
    kind = static_cast<std::int32_t>(out.first.size());
    out.first.push_back(static_cast<std::int32_t>(l));
    out.capacity.push_back(capacity[l]);
    if (apart[l] == 0) known.emplace(h, kind);
  }

  out.start.assign(demands.rows() + 1, 0);
  for (const std::int32_t l : out.first)
    for (const Term& t : columns.of(static_cast<std::size_t>(l))) ++out.start[static_cast<std::size_t>(t.row) + 1];
  for (std::size_t r = 0; r < demands.rows(); ++r) out.start[r + 1] += out.start[r];
  out.links.resize(static_cast<std::size_t>(out.start.back()));
  out.demand.resize(out.links.size());
  std::vector<std::int64_t> end(out.start.begin(), out.start.end() - 1);
  for (std::size_t k = 0; k < out.first.size(); ++k)
    for (const Term& t : columns.of(static_cast<std::size_t>(out.first[k]))) {
      const auto at = static_cast<std::size_t>(end[static_cast<std::size_t>(t.row)]++);
      out.links[at] = static_cast<std::int32_t>(k);
      out.demand[at] = t.demand;
    }
  out.passive.assign(out.first.size(), 0);
  find_passive(out, columns, apart);
  return out;
}

}  // namespace wt::net::flow
