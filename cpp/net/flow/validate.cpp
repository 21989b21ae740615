#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "net/flow/demand.h"

namespace wt::net::flow {

namespace {

// A column of `n` numbers that `ok` accepts; an empty one stands for a default where `optional`.
template <class Ok>
void numbers(const char* name, std::span<const double> column, std::size_t n, bool optional, const char* allowed, Ok&& ok) {
  if (optional && column.empty()) return;
  if (column.size() != n) fail(name, " has ", column.size(), " entries, expected ", n);
  for (std::size_t i = 0; i < n; ++i)
    if (!ok(column[i])) fail(name, "[", i, "] is ", column[i], ", must be ", allowed);
}

bool not_negative(double x) { return x >= 0.0 && std::isfinite(x); }
bool positive(double x) { return x > 0.0 && std::isfinite(x); }
bool positive_or_infinite(double x) { return x > 0.0; }

void offsets(const char* name, std::span<const std::int64_t> start, std::size_t n) {
  if (start.empty() || start.front() != 0) fail(name, " must begin with 0");
  for (std::size_t i = 1; i < start.size(); ++i)
    if (start[i] < start[i - 1]) fail(name, "[", i, "] is ", start[i], ", less than the entry before it");
  if (static_cast<std::size_t>(start.back()) != n) fail(name, " ends with ", start.back(), ", expected ", n);
}

// Variables that wait for each other, found from one that no order of running ever frees.
[[noreturn]] void name_cycle(const Variables& v, const std::vector<std::int32_t>& open) {
  std::size_t at = 0;
  while (open[at] == 0) ++at;
  std::vector<std::int64_t> step(open.size(), -1);
  std::vector<std::size_t> walk;
  while (step[at] < 0) {
    step[at] = static_cast<std::int64_t>(walk.size());
    walk.push_back(at);
    for (auto d = v.dep_start[at]; d < v.dep_start[at + 1]; ++d)
      if (const auto dep = static_cast<std::size_t>(v.deps[static_cast<std::size_t>(d)]); open[dep] > 0) {
        at = dep;
        break;
      }
  }
  std::string text = "dependencies form a cycle: variable " + std::to_string(at);
  const auto first = static_cast<std::size_t>(step[at]);
  for (std::size_t i = first + 1; i < walk.size() && i < first + 8; ++i) text += " waits for " + std::to_string(walk[i]);
  if (walk.size() > first + 8) text += " waits for ...";
  fail(text, " waits for ", at);
}

void dependencies(const Variables& v) {
  const std::size_t n = v.size_of();
  if (v.dep_start.size() != n + 1) fail("dep_start has ", v.dep_start.size(), " entries, expected ", n + 1);
  offsets("dep_start", v.dep_start, v.deps.size());
  std::vector<std::int64_t> first(n + 1, 0);
  for (std::size_t i = 0; i < v.deps.size(); ++i) {
    if (v.deps[i] < 0 || static_cast<std::size_t>(v.deps[i]) >= n)
      fail("deps[", i, "] is ", v.deps[i], "; there are variables 0 to ", static_cast<std::int64_t>(n) - 1);
    ++first[static_cast<std::size_t>(v.deps[i]) + 1];
  }
  for (std::size_t i = 0; i < n; ++i) first[i + 1] += first[i];
  std::vector<std::int32_t> child(v.deps.size()), open(n), ready;
  std::vector<std::int64_t> fill(first.begin(), first.end() - 1);
  for (std::size_t i = 0; i < n; ++i) {
    open[i] = static_cast<std::int32_t>(v.dep_start[i + 1] - v.dep_start[i]);
    if (open[i] == 0) ready.push_back(static_cast<std::int32_t>(i));
    for (auto d = v.dep_start[i]; d < v.dep_start[i + 1]; ++d) {
      const auto dep = static_cast<std::size_t>(v.deps[static_cast<std::size_t>(d)]);
      child[static_cast<std::size_t>(fill[dep]++)] = static_cast<std::int32_t>(i);
    }
  }
  std::size_t freed = 0;
  while (!ready.empty()) {
    const auto i = static_cast<std::size_t>(ready.back());
    ready.pop_back();
    ++freed;
    for (auto c = first[i]; c < first[i + 1]; ++c) {
      const std::int32_t next = child[static_cast<std::size_t>(c)];
      if (--open[static_cast<std::size_t>(next)] == 0) ready.push_back(next);
    }
  }
  if (freed < n) name_cycle(v, open);
}

}  // namespace

void validate_capacity(std::span<const double> capacity) {
  numbers("capacity", capacity, capacity.size(), false, "a finite number, zero or more", not_negative);
  if (capacity.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) fail("too many links");
}

void validate(const Demands& demands, std::size_t links) {
  offsets("row_start", demands.start, demands.links.size());
  for (std::size_t i = 0; i < demands.links.size(); ++i)
    if (demands.links[i] < 0 || static_cast<std::size_t>(demands.links[i]) >= links)
      fail("row_links[", i, "] is ", demands.links[i], "; there are links 0 to ", static_cast<std::int64_t>(links) - 1);
  numbers("demand", demands.demand, demands.links.size(), true, "a finite number above zero", positive);
}

void validate(const Changes& changes, std::size_t links) {
  const std::size_t n = changes.time.size();
  if (changes.link.size() != n || changes.capacity.size() != n) fail("the columns of changes have different lengths");
  numbers("change_time", changes.time, n, false, "a finite number, zero or more", not_negative);
  numbers("change_capacity", changes.capacity, n, false, "a finite number, zero or more", not_negative);
  for (std::size_t i = 0; i < n; ++i) {
    if (changes.link[i] < 0 || static_cast<std::size_t>(changes.link[i]) >= links)
      fail("change_link[", i, "] is ", changes.link[i], "; there are links 0 to ", static_cast<std::int64_t>(links) - 1);
    if (i > 0 && changes.time[i] < changes.time[i - 1]) fail("change_time[", i, "] lies before the entry before it");
  }
}

void validate(const Variables& v, const Demands& demands) {
  const std::size_t n = v.size_of();
  if (n > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()) - 1) fail("too many variables: ", n);
  if (v.row.empty() && n > 0) {
    if (demands.rows() != n)
      fail("without a column `row` there must be a row for each of the ", n, " variables, not ", demands.rows());
  } else if (v.row.size() != n) {
    fail("row has ", v.row.size(), " entries, expected ", n);
  }
  for (std::size_t i = 0; i < v.row.size(); ++i)
    if (v.row[i] < 0 || static_cast<std::size_t>(v.row[i]) >= demands.rows())
      fail("row[", i, "] is ", v.row[i], "; there are rows 0 to ", static_cast<std::int64_t>(demands.rows()) - 1);
  numbers("begin", v.begin, n, false, "a finite number, zero or more", not_negative);
  numbers("size", v.size, n, false, "a finite number, zero or more", not_negative);
  numbers("weight", v.weight, n, true, "a finite number above zero", positive);
  numbers("bound", v.bound, n, true, "above zero", positive_or_infinite);
  numbers("latency", v.latency, n, true, "a finite number, zero or more", not_negative);
  numbers("delay", v.delay, n, true, "a finite number, zero or more", not_negative);
  if (!v.dep_start.empty() || !v.deps.empty()) dependencies(v);
}

void validate_reach(std::span<const double> capacity, const Changes& changes, const Demands& demands, const Variables& v) {
  std::vector<char> dead(capacity.size(), 0);
  bool any = false;
  for (std::size_t l = 0; l < capacity.size(); ++l)
    if (capacity[l] == 0.0) dead[l] = 1, any = true;
  if (!any) return;
  for (std::size_t i = 0; i < changes.time.size(); ++i)
    if (changes.capacity[i] > 0.0) dead[static_cast<std::size_t>(changes.link[i])] = 0;
  for (std::size_t i = 0; i < v.size_of(); ++i) {
    if (v.size[i] == 0.0) continue;
    const std::size_t r = v.row.empty() ? i : static_cast<std::size_t>(v.row[i]);
    for (auto k = demands.start[r]; k < demands.start[r + 1]; ++k)
      if (const auto l = demands.links[static_cast<std::size_t>(k)]; dead[static_cast<std::size_t>(l)] != 0)
        fail("variable ", i, " can never finish: link ", l, " has no capacity");
  }
}

}  // namespace wt::net::flow
