#include "net/flow/network.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace wt::net::flow {

namespace {

constexpr double kRounding = 1e-14;
constexpr std::size_t kFewUnknowns = 256;  // of more the same set hardly comes twice

PlanTable checked(PlanTable t) {
  const Demands demands{t.row_start, t.row_links, t.demand};
  const Changes changes{t.change_time, t.change_link, t.change_capacity};
  const std::size_t n = t.size.size();
  const std::vector<double> begin(n, 0.0);
  Variables v;
  v.begin = begin;
  v.size = t.size;
  v.weight = t.weight;
  v.bound = t.bound;
  v.latency = t.latency;
  v.delay = t.delay;
  validate_capacity(t.capacity);
  validate(demands, t.capacity.size());
  validate(changes, t.capacity.size());
  validate(v, demands);
  validate_reach(t.capacity, changes, demands, v);
  const auto& start = t.plan_start;
  if (start.empty() || start.front() != 0 || static_cast<std::size_t>(start.back()) != n || !std::ranges::is_sorted(start))
    fail("plan_start must rise from 0 to the number of variables, ", n);
  if (!std::ranges::is_sorted(t.epochs) || (start.size() - 1) % (t.epochs.size() + 1) != 0)
    fail(start.size() - 1, " plans for ", t.epochs.size(), " epochs, which must rise");
  if (t.key_plan.size() != t.key.size()) fail("key_plan has ", t.key_plan.size(), " entries, expected ", t.key.size());
  for (std::size_t k = 0; k < t.key.size(); ++k)
    if (t.key_plan[k] < 0 || static_cast<std::size_t>(t.key_plan[k]) + 1 >= start.size())
      fail("key_plan[", k, "] is ", t.key_plan[k], "; there are plans 0 to ", static_cast<std::int64_t>(start.size()) - 2);
  return t;
}

}  // namespace

Variables FlowNetwork::variables() const {
  Variables v;
  v.size = table_.size;
  v.weight = table_.weight;
  v.bound = table_.bound;
  return v;
}

FlowNetwork::FlowNetwork(PlanTable table, double tolerance, bool bins)
    : table_(checked(std::move(table))),
      kinds_(compress(table_.capacity, Demands{table_.row_start, table_.row_links, table_.demand},
                      Changes{table_.change_time, table_.change_link, table_.change_capacity})),
      demands_(kinds_.demands()),
      grouped_(group(demands_, variables())),
      fluid_(demands_, grouped_.unknowns, kinds_.capacity, kinds_.passive, tolerance, 0),
      pulse_({}),
      tolerance_(tolerance),
      starts_(table_.plan_start.size() - 1, 0),
      total_(starts_.size(), 0.0),
      longest_(starts_.size(), 0.0) {
  if (!(tolerance >= 0.0) || tolerance >= 1.0) fail("tolerance is ", tolerance, ", must be 0 or more and below 1");
  if (bins)
    fluid_.keep_bins();
  else if (grouped_.unknowns.size() <= kFewUnknowns)
    fluid_.remember_rates(kinds_.capacity);
  plan_of_.reserve(table_.key.size());
  for (std::size_t k = 0; k < table_.key.size(); ++k)
    if (!plan_of_.emplace(table_.key[k], table_.key_plan[k]).second) fail("key ", table_.key[k], " occurs twice");
}

std::optional<double> FlowNetwork::start(const Flow& flow) {
  const auto found = plan_of_.find(flow.key);
  if (found == plan_of_.end()) return flow.begin + flow.seconds;
  std::int32_t i = static_cast<std::int32_t>(instances_.size());
  if (free_instances_.empty()) {
    instances_.emplace_back();
  } else {
    i = free_instances_.back();
    free_instances_.pop_back();
  }
  const auto epoch = static_cast<std::size_t>(std::ranges::upper_bound(table_.epochs, flow.begin) - table_.epochs.begin());
  const std::size_t plan = static_cast<std::size_t>(found->second) + epoch * (starts_.size() / (table_.epochs.size() + 1));
  const std::int64_t left = table_.plan_start[plan + 1] - table_.plan_start[plan];
  instances_[static_cast<std::size_t>(i)] = {flow.id, static_cast<std::int32_t>(plan), flow.begin, flow.begin, left};
  ++starts_[plan];
  arrivals_.push({flow.begin, order_++, i, -1});
  return std::nullopt;
}

double FlowNetwork::next_arrival() const {
  const double changed = change_ < table_.change_time.size() ? table_.change_time[change_] : kNever;
  return arrivals_.empty() ? changed : std::min(changed, arrivals_.top().time);
}

double FlowNetwork::next_event() const {
  if (fluid_.changed()) return fluid_.now();
  // capacities that change while nothing is in flight are no event
  if (arrivals_.empty() && deliveries_.empty() && fluid_.active() == 0) return kNever;
  double next = std::min(next_arrival(), fluid_.next_end());
  if (!deliveries_.empty()) next = std::min(next, deliveries_.top().time);
  return std::max(next, fluid_.now());
}

std::optional<Completion> FlowNetwork::advance() {
  pulse_.tick();
  const double now = fluid_.now();
  // What is over at this time comes first: what the ranks then start at this time belongs into the same solve.
  if (!deliveries_.empty() && deliveries_.top().time <= now) {
    const auto i = deliveries_.top().instance;
    deliveries_.pop();
    const Instance& done = instances_[static_cast<std::size_t>(i)];
    free_instances_.push_back(i);
    return Completion{done.id, done.delivered};
  }
  while (!arrivals_.empty() && arrivals_.top().time <= now * (1.0 + kRounding)) {
    const Due due = arrivals_.top();
    arrivals_.pop();
    if (due.variable < 0)
      launch(due.instance);
    else
      begin(due.instance, due.variable);
  }
  for (; change_ < table_.change_time.size() && table_.change_time[change_] <= now * (1.0 + kRounding); ++change_)
    if (const auto kind = kinds_.kind[static_cast<std::size_t>(table_.change_link[change_])]; kind >= 0)
      fluid_.set_capacity(kind, table_.change_capacity[change_]);
  if (fluid_.changed()) {
    fluid_.settle();
    ++events_;
    fail_if_stalled();
    return std::nullopt;
  }
  const double delivery = deliveries_.empty() ? kNever : deliveries_.top().time;
  const double until = std::min(next_arrival(), delivery);
  if (fluid_.next_end() <= until && fluid_.next_end() < kNever) {
    fluid_.end_next(until, [this](std::int32_t member, double end) {
      const Member m = members_[static_cast<std::size_t>(member)];
      free_members_.push_back(member);
      deliver(m.instance, m.variable, end);
      return kNever;
    });
  } else if (until < kNever) {
    fluid_.advance(until);
  }
  return std::nullopt;
}

void FlowNetwork::launch(std::int32_t instance) {
  const auto plan = static_cast<std::size_t>(instances_[static_cast<std::size_t>(instance)].plan);
  const std::int64_t first = table_.plan_start[plan], last = table_.plan_start[plan + 1];
  if (first == last) deliveries_.push({fluid_.now(), order_++, instance, -1});
  for (auto v = first; v < last; ++v) {
    const double delay = table_.delay.empty() ? 0.0 : table_.delay[static_cast<std::size_t>(v)];
    if (delay > 0.0)
      arrivals_.push(
          {instances_[static_cast<std::size_t>(instance)].begin + delay, order_++, instance, static_cast<std::int32_t>(v)});
    else
      begin(instance, static_cast<std::int32_t>(v));
  }
}

void FlowNetwork::begin(std::int32_t instance, std::int32_t variable) {
  const auto v = static_cast<std::size_t>(variable);
  if (table_.size[v] == 0.0 || grouped_.of[v] == kNothing) return deliver(instance, variable, fluid_.now());
  std::int32_t member = static_cast<std::int32_t>(members_.size());
  if (free_members_.empty()) {
    members_.emplace_back();
  } else {
    member = free_members_.back();
    free_members_.pop_back();
  }
  members_[static_cast<std::size_t>(member)] = {instance, variable};
  fluid_.join(member, grouped_.of[v], table_.size[v], table_.weight.empty() ? 1.0 : table_.weight[v]);
}

void FlowNetwork::deliver(std::int32_t instance, std::int32_t variable, double end) {
  Instance& i = instances_[static_cast<std::size_t>(instance)];
  const double latency = table_.latency.empty() ? 0.0 : table_.latency[static_cast<std::size_t>(variable)];
  i.delivered = std::max(i.delivered, end + latency);
  if (--i.left > 0) return;
  const auto plan = static_cast<std::size_t>(i.plan);
  total_[plan] += i.delivered - i.begin;
  longest_[plan] = std::max(longest_[plan], i.delivered - i.begin);
  deliveries_.push({i.delivered, order_++, instance, -1});
}

void FlowNetwork::fail_if_stalled() const {
  if (fluid_.active() == 0 || fluid_.next_end() < kNever || next_arrival() < kNever || !deliveries_.empty()) return;
  const auto kind = static_cast<std::size_t>(fluid_.stopped_by(fluid_.stalled()));
  fail("link ", kinds_.first[kind], " has no capacity from ", fluid_.now(), " s on, and what is on it can never finish");
}

double FlowNetwork::alone(Fluid& fluid, std::size_t plan) const {
  const double origin = fluid.now();
  double last = origin;
  std::vector<std::pair<double, std::int32_t>> waiting;
  for (auto v = table_.plan_start[plan]; v < table_.plan_start[plan + 1]; ++v)
    waiting.emplace_back(origin + (table_.delay.empty() ? 0.0 : table_.delay[static_cast<std::size_t>(v)]),
                         static_cast<std::int32_t>(v));
  std::ranges::sort(waiting);
  const auto end = [&](std::int32_t v, double at) {
    last = std::max(last, at + (table_.latency.empty() ? 0.0 : table_.latency[static_cast<std::size_t>(v)]));
    return kNever;
  };
  std::size_t next = 0;
  while (next < waiting.size() || fluid.next_end() < kNever) {
    const double until = next < waiting.size() ? waiting[next].first : kNever;
    if (fluid.next_end() <= until)
      fluid.end_next(until, end);
    else
      fluid.advance(until);
    for (; next < waiting.size() && waiting[next].first <= fluid.now() * (1.0 + kRounding); ++next) {
      const auto v = static_cast<std::size_t>(waiting[next].second);
      if (table_.size[v] == 0.0 || grouped_.of[v] == kNothing)
        end(waiting[next].second, fluid.now());
      else
        fluid.join(waiting[next].second, grouped_.of[v], table_.size[v], table_.weight.empty() ? 1.0 : table_.weight[v]);
    }
    fluid.settle();
  }
  return fluid.active() > 0 ? kNever : last - origin;
}

PlanReport FlowNetwork::report() {
  PlanReport out;
  out.use = link_use(fluid_, kinds_.kind, table_.capacity.size());
  out.starts = starts_;
  out.total = total_;
  out.longest = longest_;
  std::optional<Fluid> fluid;
  for (std::size_t p = 0; p < starts_.size(); ++p) {
    if (!fluid || fluid->active() > 0)  // the plan before stood still on a link without capacity
      fluid.emplace(demands_, grouped_.unknowns, kinds_.capacity, kinds_.passive, tolerance_, table_.size.size());
    out.alone.push_back(alone(*fluid, p));
  }
  out.now = fluid_.now();
  out.events = events_;
  out.unknowns = static_cast<std::int64_t>(grouped_.unknowns.size());
  out.constraints = static_cast<std::int64_t>(kinds_.first.size());
  out.active_constraints = out.constraints - std::count(kinds_.passive.begin(), kinds_.passive.end(), std::uint8_t{1});
  out.solver = fluid_.solver().stats();
  return out;
}

}  // namespace wt::net::flow
