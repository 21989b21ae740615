#include "net/flow/run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <queue>

#include "base/check.h"
#include "net/flow/compress.h"
#include "net/flow/pulse.h"
#include "net/flow/unknowns.h"

namespace wt::net::flow {

namespace {

struct Arrival {
  double time;
  std::int32_t variable;
  bool operator>(const Arrival& o) const { return time > o.time || (time == o.time && variable > o.variable); }
};

// Variables in the order in which they may start: those without dependencies sorted by begin, the others as they are freed.
class Arrivals {
 public:
  explicit Arrivals(const Variables& v) : v_(v) {
    const std::size_t n = v.size_of();
    for (std::size_t i = 0; i < n; ++i)
      if (v.dep_start.empty() || v.dep_start[i] == v.dep_start[i + 1]) order_.push_back(static_cast<std::int32_t>(i));
    const auto by_begin = [&](std::int32_t a, std::int32_t b) { return begin(a) < begin(b); };
    if (!std::is_sorted(order_.begin(), order_.end(), by_begin)) std::stable_sort(order_.begin(), order_.end(), by_begin);
    if (v.deps.empty()) return;
    ready_.assign(n, 0.0);
    open_.resize(n);
    first_.assign(n + 1, 0);
    for (const std::int32_t d : v.deps) ++first_[static_cast<std::size_t>(d) + 1];
    for (std::size_t i = 0; i < n; ++i) first_[i + 1] += first_[i];
    child_.resize(v.deps.size());
    std::vector<std::int64_t> end(first_.begin(), first_.end() - 1);
    for (std::size_t i = 0; i < n; ++i) {
      open_[i] = static_cast<std::int32_t>(v.dep_start[i + 1] - v.dep_start[i]);
      for (auto d = v.dep_start[i]; d < v.dep_start[i + 1]; ++d)
        child_[static_cast<std::size_t>(end[static_cast<std::size_t>(v.deps[static_cast<std::size_t>(d)])]++)] =
            static_cast<std::int32_t>(i);
    }
  }

  [[nodiscard]] double next() const {
    const double sorted = next_ < order_.size() ? begin(order_[next_]) : kNever;
    return freed_.empty() ? sorted : std::min(sorted, freed_.top().time);
  }
  std::int32_t pop() {
    if (!freed_.empty() && (next_ == order_.size() || freed_.top().time < begin(order_[next_]))) {
      const std::int32_t v = freed_.top().variable;
      freed_.pop();
      return v;
    }
    return order_[next_++];
  }
  // A variable was delivered; returns the earliest start that this frees.
  double deliver(std::int32_t variable, double time) {
    if (v_.deps.empty()) return kNever;
    double earliest = kNever;
    const auto d = static_cast<std::size_t>(variable);
    for (auto i = first_[d]; i < first_[d + 1]; ++i) {
      const auto c = static_cast<std::size_t>(child_[static_cast<std::size_t>(i)]);
      ready_[c] = std::max(ready_[c], time);
      if (--open_[c] > 0) continue;
      const double start = std::max(v_.begin[c], ready_[c] + (v_.delay.empty() ? 0.0 : v_.delay[c]));
      freed_.push({start, static_cast<std::int32_t>(c)});
      earliest = std::min(earliest, start);
    }
    return earliest;
  }

 private:
  [[nodiscard]] double begin(std::int32_t v) const { return v_.begin[static_cast<std::size_t>(v)]; }

  const Variables& v_;
  std::vector<std::int32_t> order_;
  std::size_t next_ = 0;
  std::vector<double> ready_;
  std::vector<std::int32_t> open_, child_;
  std::vector<std::int64_t> first_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> freed_;
};

[[noreturn]] void fail_stalled(const Fluid& fluid, const std::vector<std::int32_t>& of, const Outcome& out,
                               const std::optional<Compressed>& kinds) {
  const std::int32_t unknown = fluid.stalled();
  std::int32_t link = fluid.solver().stopped_by(unknown);
  if (kinds) link = kinds->first[static_cast<std::size_t>(link)];
  for (std::size_t i = 0; i < of.size(); ++i)
    if (of[i] == unknown && out.end[i] == kNever && out.start[i] <= fluid.now())
      fail("variable ", i, " can never finish: link ", link, " has no capacity from ", fluid.now(), " s on");
  fail("link ", link, " has no capacity, and what is on it can never finish");
}

}  // namespace

double memory_estimate(std::size_t links, const Demands& demands, const Variables& v) {
  const auto n = static_cast<double>(v.size_of()), e = static_cast<double>(demands.links.size());
  double bytes = n * (2 * 8 + 4 + 4 + 40 + 160) + static_cast<double>(demands.rows()) * 16 + static_cast<double>(links) * 200;
  bytes += e * (demands.demand.empty() ? 8 : 16 + (demands.rows() <= links ? 44 : 0));
  return bytes + static_cast<double>(v.deps.size()) * 12;
}

LinkUse link_use(Fluid& fluid, std::span<const std::int32_t> kind, std::size_t links) {
  LinkUse use;
  const auto& metered = fluid.metered();
  for (std::vector<double>* column : {&use.bytes, &use.busy, &use.full}) column->assign(links, 0.0);
  for (std::size_t l = 0; l < links; ++l) {
    const std::int32_t k = kind.empty() ? static_cast<std::int32_t>(l) : kind[l];
    if (k < 0) continue;
    const Meter::Link& m = metered[static_cast<std::size_t>(k)];
    use.bytes[l] = m.bytes;
    use.busy[l] = m.busy;
    use.full[l] = m.full;
  }
  const std::vector<Meter::OverTime>& bins = fluid.over_time();
  if (bins.empty()) return use;
  std::vector<std::int32_t> row(bins.size(), -1);
  const auto [shift, most] = common(bins, [](const Meter::OverTime& b) -> const Meter::OverTime& { return b; });
  use.series.width = std::ldexp(1e-12, shift);
  use.series.bins = most;
  std::int32_t rows = 0;
  for (std::size_t k = 0; k < bins.size(); ++k) {
    if (bins[k].values().empty()) continue;
    row[k] = rows++;
    use.series.add(bins[k], shift);
  }
  for (std::size_t l = 0; l < links; ++l) {
    const std::int32_t k = kind.empty() ? static_cast<std::int32_t>(l) : kind[l];
    use.row.push_back(k < 0 ? -1 : row[static_cast<std::size_t>(k)]);
  }
  return use;
}

Outcome run(std::span<const double> capacity, const Demands& demands, const Variables& v, const Changes& changes,
            const Options& options) {
  if (!(options.tolerance >= 0.0) || options.tolerance >= 1.0)
    fail("tolerance is ", options.tolerance, ", must be 0 or more and below 1");
  if (const double need = memory_estimate(capacity.size(), demands, v); options.memory > 0.0 && need > options.memory)
    fail("the run needs up to ", need / 1073741824.0, " GiB of memory for ", v.size_of(), " variables over ", demands.links.size(),
         " entries of rows; it may take ", options.memory / 1073741824.0, " GiB");
  validate_capacity(capacity);
  validate(demands, capacity.size());
  validate(changes, capacity.size());
  validate(v, demands);
  validate_reach(capacity, changes, demands, v);

  const std::size_t n = v.size_of();
  std::optional<Compressed> kinds;  // worth it where many links lie under few rows
  if (demands.rows() <= capacity.size()) kinds = compress(capacity, demands, changes);
  const Demands over = kinds ? kinds->demands() : demands;
  const Grouped grouped = group(over, v);
  Fluid fluid(over, grouped.unknowns, kinds ? std::span<const double>(kinds->capacity) : capacity,
              kinds ? kinds->passive : std::vector<std::uint8_t>{}, options.tolerance, n);
  if (options.bins) fluid.keep_bins();
  Arrivals arrivals(v);
  Outcome out;
  out.start.assign(n, kNever);
  out.end.assign(n, kNever);
  out.unknowns = static_cast<std::int64_t>(grouped.unknowns.size());
  out.constraints = static_cast<std::int64_t>(kinds ? kinds->first.size() : capacity.size());
  std::size_t ended = 0, change = 0;
  Pulse pulse([&] {
    if (options.progress) options.progress(static_cast<double>(ended) / static_cast<double>(n));
  });

  const auto finish = [&](std::int32_t variable, double end) {
    const auto i = static_cast<std::size_t>(variable);
    out.end[i] = end;
    ++ended;
    const double delivered = end + (v.latency.empty() ? 0.0 : v.latency[i]);
    out.last = std::max(out.last, delivered);
    return arrivals.deliver(variable, delivered);
  };

  while (ended < n) {
    pulse.tick();
    const double arrival = arrivals.next();
    const double changed = change < changes.time.size() ? changes.time[change] : kNever;
    const double until = std::min(arrival, changed);
    const double end = fluid.next_end();
    if (end == kNever && until == kNever) fail_stalled(fluid, grouped.of, out, kinds);
    if (end <= until)
      fluid.end_next(until, finish);
    else
      fluid.advance(until);
    const double present = fluid.now() * (1.0 + 1e-14);
    while (arrivals.next() <= present) {
      const std::int32_t a = arrivals.pop();
      const auto i = static_cast<std::size_t>(a);
      out.start[i] = fluid.now();
      if (v.size[i] == 0.0 || grouped.of[i] == kNothing)
        finish(a, fluid.now());
      else
        fluid.join(a, grouped.of[i], v.size[i], v.weight.empty() ? 1.0 : v.weight[i]);
    }
    for (; change < changes.time.size() && changes.time[change] <= present; ++change) {
      const std::int32_t link = changes.link[change];
      const std::int32_t kind = kinds ? kinds->kind[static_cast<std::size_t>(link)] : link;
      if (kind >= 0) fluid.set_capacity(kind, changes.capacity[change]);
    }
    fluid.settle();
    ++out.events;
  }

  out.use = link_use(fluid, kinds ? std::span<const std::int32_t>(kinds->kind) : std::span<const std::int32_t>{}, capacity.size());
  out.solver = fluid.solver().stats();
  return out;
}

}  // namespace wt::net::flow
