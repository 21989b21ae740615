#include "net/packet/network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/time.h"
#include "net/packet/deadlock.h"

namespace wt::net::packet {

namespace {

constexpr std::int64_t kBeat = 4096;  // calls of advance() between two pulses

fabric::Graph graph_of(const PlanTable& t) {
  return {t.node_kind, t.node_site, t.link_from, t.link_to,   t.link_rate, t.link_latency,
          t.link_axis, t.link_up,   t.endpoint,  t.nic_start, t.nics,      t.rail};
}

Lanes lanes_of(const PlanTable& t) {
  return {t.src,  t.dst,   t.path,  t.bytes,     t.slice,    t.window,   t.delay,
          t.rate, t.begin, t.group, t.dep_start, t.dep_lane, t.dep_lead, t.hold};
}

// Dependencies name lanes of their own plan; in the world's numbering they are behind those of the plans before.
PlanTable shifted(PlanTable t) {
  for (std::size_t p = 0; p + 1 < t.plan_start.size(); ++p)
    for (std::int64_t d = t.dep_start[t.plan_start[p]]; d < t.dep_start[t.plan_start[p + 1]]; ++d) {
      const std::int64_t lanes = t.plan_start[p + 1] - t.plan_start[p];
      if (t.dep_lane[d] < 0 || t.dep_lane[d] >= lanes)
        fail("packet network: plan ", p, " depends on its lane ", t.dep_lane[d], " of ", lanes);
      t.dep_lane[d] += static_cast<std::int32_t>(t.plan_start[p]);
    }
  return t;
}

// Lanes are for their plan.
Options tagged(Options options, const PlanTable& t) {
  if (!options.loads) return options;
  options.tags.resize(t.src.size());
  for (std::size_t p = 0; p + 1 < t.plan_start.size(); ++p)
    for (std::int64_t lane = t.plan_start[p]; lane < t.plan_start[p + 1]; ++lane) options.tags[lane] = static_cast<std::int32_t>(p);
  return options;
}

}  // namespace

PacketNetwork::PacketNetwork(PlanTable table, const Options& options, const Faults& faults)
    : table_(shifted(std::move(table))),
      world_(graph_of(table_), Paths{table_.path_start, table_.path_links}, lanes_of(table_), tagged(options, table_), faults),
      part_(world_, 0, world_.span()) {
  world_.make_patterns();
  const std::size_t plans = table_.plan_start.size() - 1;
  for (std::size_t i = 0; i < table_.key.size(); ++i) {
    const std::int32_t plan = table_.key_plan[i];
    if (plan < 0 || static_cast<std::size_t>(plan) >= plans)
      fail("packet network: key ", table_.key[i], " names plan ", plan, " of ", plans);
    if (!plan_of_.emplace(table_.key[i], plan).second) fail("packet network: key ", table_.key[i], " is there twice");
  }
  if (world_.telemetry) world_.traces.push_back(std::make_unique<Traces>());
  spare_.resize(plans);
  starts_.resize(plans);
  total_.resize(plans);
  longest_.resize(plans);
  // where packets may be lost or overtake each other, some may still be about when all has been acknowledged
  reuse_ = options.loss != Loss::kDrop && options.spread == Spread::kPath && !world_.lossy_links &&
           options.recovery == Recovery::kGoBackN;
}

std::optional<double> PacketNetwork::start(const Flow& flow) {
  const auto found = plan_of_.find(flow.key);
  if (found == plan_of_.end()) return flow.begin + flow.seconds;
  const std::int32_t plan = found->second;
  const auto first = static_cast<std::uint32_t>(table_.plan_start[plan]),
             last = static_cast<std::uint32_t>(table_.plan_start[plan + 1]);
  if (first == last) return flow.begin;
  const auto number = static_cast<std::int32_t>(instances_.size());
  std::uint32_t at = World::kAtEnd;
  if (!spare_[plan].empty()) {
    at = spare_[plan].back();
    spare_[plan].pop_back();
  }
  at = world_.copy(first, last, number, at);
  const Time begin = std::max(part_.now(), static_cast<Time>(std::llround(flow.begin / kPicosecond)));
  instances_.push_back({plan, flow.id, at, begin});
  world_.undelivered.push_back(static_cast<std::int32_t>(last - first));
  world_.unfinished.push_back(2 * static_cast<std::int32_t>(last - first));
  std::vector<std::uint32_t> pairs(last - first);
  for (std::uint32_t i = 0; i < last - first; ++i) {
    pairs[i] = at + i;
    world_.gates[at + i].begin += begin;
  }
  part_.start(pairs);
  ++starts_[plan];
  ++flying_;
  return std::nullopt;
}

double PacketNetwork::next_event() const {
  if (!ends_.empty()) return ends_.front().end;
  if (flying_ == 0) return kNever;  // last ACKs and timers wait for what comes next
  const Time next = part_.next_event();
  return next == kForever ? kNever : seconds(next);
}

std::optional<Completion> PacketNetwork::advance() {
  if (pulse_ && ++beats_ % kBeat == 0) pulse_();
  if (ends_.empty()) {
    const Time next = part_.next_event();
    if (next == kForever) return std::nullopt;
    try {
      part_.run(next + 1, INT64_MAX);
    } catch (const Error&) {
      check_deadlock(world_);
      throw;
    }
    collect();
  }
  if (ends_.empty()) return std::nullopt;
  const Completion end = ends_.front();
  ends_.pop_front();
  return end;
}

std::vector<std::int32_t> PacketNetwork::ways(std::int32_t plan) const {
  std::vector<std::int32_t> links;
  for (std::int64_t lane = table_.plan_start[plan]; lane < table_.plan_start[plan + 1]; ++lane)
    world_.add_ways(static_cast<std::uint32_t>(lane), links);
  return links;
}

void PacketNetwork::finish() {
  while (part_.run(kForever, kSlab))
    if (pulse_) pulse_();
  collect();
}

void PacketNetwork::collect() {
  for (const std::int32_t i : part_.delivered) {
    const Instance& instance = instances_[i];
    const double end = seconds(part_.now()), took = seconds(part_.now() - instance.begin);
    ends_.push_back({instance.flow, end});
    total_[instance.plan] += took;
    longest_[instance.plan] = std::max(longest_[instance.plan], took);
  }
  flying_ -= static_cast<std::int64_t>(part_.delivered.size());
  part_.delivered.clear();
  if (reuse_)
    for (const std::int32_t i : part_.finished_instances) spare_[instances_[i].plan].push_back(instances_[i].first);
  part_.finished_instances.clear();
}

PlanReport PacketNetwork::report(bool with_loads) const {
  PlanReport r;
  r.stats = part_.stats;
  for (const Link& link : world_.links) {
    r.link_data.push_back(link.left);
    r.link_control.push_back(link.control_bytes);
    r.link_peak.push_back(link.peak);
    r.link_paused.push_back(seconds(link.stopped_for));
  }
  r.starts = starts_;
  r.total = total_;
  r.longest = longest_;
  if (world_.counts && with_loads) r.loads = loads_of(world_.loads);
  r.now = seconds(part_.now());
  return r;
}

}  // namespace wt::net::packet
