#include "net/packet/network.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/time.h"
#include "net/packet/deadlock.h"
#include "net/packet/partition.h"

namespace wt::net::packet {

namespace {

constexpr std::int64_t kBeat = 256;    // calls of advance() between two pulses
constexpr Time kLeastAhead = 100'000;  // less is not worth a stretch of its own
constexpr std::int32_t kShares = 2;    // partitions of a thread, since servers are not busy at the same times

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

PacketNetwork::PacketNetwork(PlanTable table, const Options& options, const Faults& faults, std::shared_ptr<Crew> crew)
    : table_(shifted(std::move(table))),
      world_(graph_of(table_), Paths{table_.path_start, table_.path_links}, lanes_of(table_), tagged(options, table_), faults) {
  world_.make_patterns();
  const std::size_t plans = table_.plan_start.size() - 1;
  for (std::size_t i = 0; i < table_.key.size(); ++i) {
    const std::int32_t plan = table_.key_plan[i];
    if (plan < 0 || static_cast<std::size_t>(plan) >= plans)
      fail("packet network: key ", table_.key[i], " names plan ", plan, " of ", plans);
    if (!plan_of_.emplace(table_.key[i], plan).second) fail("packet network: key ", table_.key[i], " is there twice");
  }
  spare_.resize(plans);
  starts_.resize(plans);
  total_.resize(plans);
  longest_.resize(plans);
  // where packets may be lost or overtake each other, some may still be about when all has been acknowledged
  reuse_ = options.loss != Loss::kDrop && options.spread == Spread::kPath && !world_.lossy_links &&
           options.recovery == Recovery::kGoBackN;
  const Time least = std::min(least_begin(), static_cast<Time>(options.most_ahead / kPicosecond));
  ahead_ = least < kLeastAhead ? 0 : least;
  divide(std::move(crew));
}

// How long after its launch a plan does something at the earliest: lanes that wait for others do so later.
Time PacketNetwork::least_begin() const {
  Time least = kForever;
  for (std::size_t lane = 0; lane < world_.gates.size(); ++lane) {
    bool waits = false;
    for (std::int64_t d = table_.dep_start[lane]; d < table_.dep_start[lane + 1]; ++d) waits = waits || table_.dep_lead[d] <= 0;
    if (!waits) least = std::min(least, world_.gates[lane].begin);
  }
  return least;
}

void PacketNetwork::divide(std::shared_ptr<Crew> crew) {
  const Options& o = world_.options;
  const std::int32_t wanted = o.parts > 0 ? o.parts : o.threads > 1 ? kShares * o.threads : 1;
  const std::int32_t count = ahead_ > 0 ? partition(world_, wanted) : 1;
  const Time span = world_.span();
  for (std::int32_t i = 0; i < count; ++i) {
    if (world_.telemetry) world_.traces.push_back(std::make_unique<Traces>());
    parts_.push_back(std::make_unique<Part>(world_, i, span));
  }
  if (count == 1) return;
  crew_ = crew ? std::move(crew) : std::make_shared<Crew>(o.threads);
  windows_ = std::make_unique<Windows>(parts_, lookahead(world_), *crew_, o.few);
}

// Pairs of an instance of the plan that was over before the caller's clock, else new ones.
std::uint32_t PacketNetwork::free_pairs(std::int32_t plan, double clock) {
  for (; !over_.empty() && (over_.front().time <= told_ || seconds(over_.front().time) < clock); over_.pop_front()) {
    const Instance& of = instances_[over_.front().instance];
    spare_[of.plan].push_back(of.first);
  }
  if (spare_[plan].empty()) return World::kAtEnd;
  const std::uint32_t at = spare_[plan].back();
  spare_[plan].pop_back();
  return at;
}

std::optional<double> PacketNetwork::start(const Flow& flow) {
  const auto found = plan_of_.find(flow.key);
  if (found == plan_of_.end()) return flow.begin + flow.seconds;
  const std::int32_t plan = found->second;
  const auto first = static_cast<std::uint32_t>(table_.plan_start[plan]),
             last = static_cast<std::uint32_t>(table_.plan_start[plan + 1]);
  if (first == last) return flow.begin;
  const auto number = static_cast<std::int32_t>(instances_.size()), lanes = static_cast<std::int32_t>(last - first);
  const std::uint32_t at = world_.copy(first, last, number, free_pairs(plan, flow.clock));
  const Time begin = std::max(told_, static_cast<Time>(std::llround(flow.begin / kPicosecond)));
  instances_.push_back({plan, flow.id, at, begin, lanes, 2 * lanes});
  handed_ = std::max(handed_, static_cast<Time>(flow.clock / kPicosecond));
  const Time from = ahead_ > 0 ? reached_ : 0;
  for (std::uint32_t pair = at; pair < at + (last - first); ++pair) {
    world_.gates[pair].begin += begin;
    const auto part = static_cast<std::size_t>(world_.nodes[world_.graph.endpoint[world_.lanes.src[first + (pair - at)]]].part);
    parts_[part]->start({&pair, 1}, from);
    if (windows_) windows_->wake(part, std::max(from, world_.gates[pair].begin));
  }
  ++starts_[plan];
  ++flying_;
  return std::nullopt;
}

// What the caller's clock has to come to before more is known.
Time PacketNetwork::next() const {
  if (ahead_ == 0) return parts_[0]->next_event();
  const bool waits = windows_ ? windows_->next() == kForever : parts_[0]->not_before() == kForever;
  return waits ? kForever : std::max(reached_, handed_);
}

double PacketNetwork::next_event() const {
  if (!ends_.empty()) return seconds(ends_.front().time);
  if (flying_ == 0) return kNever;  // last ACKs and timers wait for what comes next
  const Time time = next();
  return time == kForever ? kNever : seconds(time);
}

std::optional<Completion> PacketNetwork::advance() {
  if (pulse_ && ++beats_ % kBeat == 0) pulse_();
  if (ends_.empty()) {
    const Time time = next();
    if (time == kForever) return std::nullopt;
    told_ = std::max(told_, time);
    run_to(time + std::max(ahead_, Time{1}));
  } else {
    told_ = std::max(told_, ends_.front().time);
  }
  if (ends_.empty() || ends_.front().time > told_) return std::nullopt;
  const Ended end = ends_.front();
  ends_.pop_front();
  return Completion{instances_[end.instance].flow, seconds(end.time)};
}

void PacketNetwork::run_to(Time until) {
  try {
    if (windows_) {
      windows_->run(until, [this](std::int64_t) {
        if (pulse_) pulse_();
        return false;
      });
    } else {
      while (parts_[0]->run(until, kSlab))
        if (pulse_) pulse_();
    }
  } catch (const Error&) {
    check_deadlock(world_);
    throw;
  }
  reached_ = until;
  collect();
}

std::vector<std::int32_t> PacketNetwork::ways(std::int32_t plan) const {
  std::vector<std::int32_t> links;
  for (std::int64_t lane = table_.plan_start[plan]; lane < table_.plan_start[plan + 1]; ++lane)
    world_.add_ways(static_cast<std::uint32_t>(lane), links);
  return links;
}

void PacketNetwork::finish() { run_to(kForever); }

void PacketNetwork::collect() {
  news_.clear();
  for (const auto& part : parts_) {
    news_.insert(news_.end(), part->ended_lanes.begin(), part->ended_lanes.end());
    part->ended_lanes.clear();
  }
  std::stable_sort(news_.begin(), news_.end(),
                   [](const Part::End& a, const Part::End& b) { return std::tie(a.time, a.event) < std::tie(b.time, b.event); });
  for (const Part::End& end : news_) {
    Instance& instance = instances_[end.instance];
    if (end.delivered && --instance.undelivered == 0) {
      const double took = seconds(end.time - instance.begin);
      ends_.push_back({end.time, end.instance});
      total_[instance.plan] += took;
      longest_[instance.plan] = std::max(longest_[instance.plan], took);
      --flying_;
    }
    if (--instance.unfinished == 0 && reuse_) over_.push_back({end.time, end.instance});
  }
}

PlanReport PacketNetwork::report(bool with_loads) const {
  PlanReport r;
  for (const auto& part : parts_) r.stats.add(part->stats);
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
  r.now = seconds(told_);
  r.partitions = partitions();
  return r;
}

}  // namespace wt::net::packet
